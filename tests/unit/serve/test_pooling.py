"""The serving decision for embedding models and rerankers: their arguments, parallelism and refused options."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plans import inputs

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Decision

STACKS = [name for name, stack in stacks.STACKS.items() if stack.vllm and stack.image_has_ray is not False]


def decide(model: str, stack: str = "current", count: int = 1, thors: int = 0, **settings: Any) -> Decision:
    return serve_plan.decide(inputs(model, stack, count, thors, **settings))


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(
    ("model", "kind", "dimension", "converted"),
    [
        ("qwen3-embedding-0.6b", "embed", 1024, "--convert=embed"),
        ("qwen3-reranker-0.6b", "rerank", 0, "--hf-overrides="),
        ("bge-m3", "embed", 1024, ""),
        ("bge-reranker-v2-m3", "rerank", 0, ""),
    ],
)
def test_each_release_gets_the_arguments_of_the_kind(
    stack: str, model: str, kind: str, dimension: int, converted: str
) -> None:
    found = decide(model, stack)
    assert found.problems == []
    assert (found.kind.name, found.kind.dimension) == (kind, dimension)
    assert "--runner=pooling" in found.args
    assert [word.partition("=")[0] for word in found.args if word.startswith(("--convert", "--hf-overrides"))] == [
        word for word in [converted.partition("=")[0]] if word
    ]
    assert any(line.startswith(f"the model is of the kind {kind}: ") for line in found.why)
    assert "golden answers are not compared: they consist of generated tokens" in found.why


def test_a_generating_model_gets_none_of_them() -> None:
    found = decide("gpt-oss-20b")
    assert found.kind.name == "generate"
    assert not [word for word in found.args if word.startswith(("--runner", "--convert"))]


def test_the_users_arguments_win() -> None:
    given = [
        "--runner",
        "pooling",
        "--hf-overrides",
        json.dumps({"is_matryoshka": True}),
        "--pooler-config",
        json.dumps({"dimensions": 256}),
    ]
    found = decide("qwen3-embedding-0.6b", gb10_vllm_extra_args=given)
    assert (found.problems, found.kind.dimension) == ([], 256)
    assert not [word for word in found.args if word.startswith(("--runner", "--convert"))]


def test_options_of_generation_are_refused_together() -> None:
    given = [
        "--reasoning-parser",
        "qwen3",
        "--speculative-config",
        json.dumps({"method": "ngram", "num_speculative_tokens": 2}),
    ]
    models = {"mine": {"hub": "Qwen/Qwen3-Embedding-0.6B", "kind": "embed", "args": ["--tool-call-parser", "hermes"]}}
    found = decide("mine", gb10_models=models, gb10_vllm_extra_args=given)
    paths = [problem.path.rpartition(".")[2] for problem in found.problems]
    assert paths == ["--tool-call-parser", "--reasoning-parser", "--speculative-config"]


def test_an_encoder_is_never_a_pipeline() -> None:
    split = decide("bge-m3", count=4, thors=2, gb10_data_parallel_size=1)
    assert (split.tensor, split.pipeline, split.data) == (4, 1, 1)
    (problem,) = decide("bge-m3", count=3, gb10_data_parallel_size=1).problems or [None]
    assert problem is not None and problem.path == "gb10_pipeline_parallel_size"
    assert decide("bge-m3", count=3).problems == []


@pytest.mark.parametrize("model", ["qwen3-embedding-8b", "qwen3-reranker-0.6b", "bge-m3", "bge-reranker-v2-m3"])
@pytest.mark.parametrize(("count", "thors"), [(2, 0), (3, 0), (4, 2)])
def test_each_node_has_a_replica_of_a_model_that_generates_nothing(model: str, count: int, thors: int) -> None:
    found = decide(model, count=count, thors=thors)
    assert (found.tensor, found.pipeline, found.data, found.problems) == (1, 1, count, [])
    assert f"data {count}: one node holds the model; gb10_data_parallel_size: 1 splits it instead" in found.why
    assert decide(model).data == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"gb10_data_parallel_size": 1},
        {"gb10_tensor_parallel_size": 2},
        {"gb10_pipeline_parallel_size": 1},
        # One node does not hold the weights of 15 GB.
        {"gb10_memory_reserve": 105},
    ],
)
def test_a_model_is_split_on_request_and_when_it_is_too_large(settings: dict[str, Any]) -> None:
    found = decide("qwen3-embedding-8b", count=2, **settings)
    assert (found.tensor, found.pipeline, found.data, found.problems) == (2, 1, 1, [])


def test_the_kv_cache_of_texts_is_one_batch_and_two_texts() -> None:
    memory = decide("qwen3-embedding-8b").memory
    assert memory is not None
    assert memory.tokens == pytest.approx(2 * memory.context, rel=0.01)
    assert memory.max_num_seqs == 64
    generating = decide("llama-3.1-8b-instruct").memory
    assert generating is not None
    assert generating.tokens > 4 * generating.context
    everything = decide("qwen3-embedding-8b", gb10_kv_cache_contexts=0).memory
    assert everything is not None
    assert everything.tokens > 4 * memory.tokens
