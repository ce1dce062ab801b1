"""The kind of a model: its files as vLLM reads them, its entry, arguments, and the arguments that the kind needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from parameters import parameters

from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory_schema
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, kind
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import shape

ARGS = "gb10_vllm_extra_args"
MODULES = [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Pooling"}]
SCORE = {"architectures": ["XLMRobertaForSequenceClassification"], "id2label": {"0": "LABEL_0"}}


def of(architecture: str, **keys: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "hidden_size": 256, **keys}


@pytest.mark.parametrize(
    ("config", "given", "name"),
    [
        (of("LlamaForCausalLM"), {}, "generate"),
        (of("Qwen3VLForConditionalGeneration"), {}, "generate"),
        (of("ChatGLMModel"), {}, "generate"),
        (of("GPT2LMHeadModel"), {}, "generate"),
        ({}, {}, "generate"),
        (None, {}, "generate"),
        (of("Unknown"), {}, "generate"),
        ({"architectures": "LlamaModel"}, {}, "generate"),
        (of("XLMRobertaModel"), {}, "embed"),
        (of("Qwen2Model"), {}, "embed"),
        (of("RobertaForMaskedLM"), {}, "embed"),
        (kind.with_modules(of("Qwen3ForCausalLM"), MODULES), {}, "embed"),
        (kind.with_modules(of("Qwen3ForCausalLM"), MODULES[:1]), {}, "generate"),
        (SCORE, {}, "rerank"),
        (of("Qwen3ForSequenceClassification", num_labels=1), {}, "rerank"),
        (of("Qwen3ForCausalLM"), {"--runner": "pooling"}, "embed"),
        (of("Qwen3ForCausalLM"), {"--runner": "auto"}, "generate"),
        (of("Qwen3ForCausalLM"), {"--convert": "classify"}, "rerank"),
        (SCORE, {"--runner": "pooling"}, "rerank"),
        (kind.with_modules(of("Qwen3ForCausalLM"), MODULES), {"--runner": "generate"}, "generate"),
        (
            of("Qwen3ForCausalLM"),
            {"--hf-overrides": json.dumps({**SCORE, "architectures": ["Qwen3ForSequenceClassification"]})},
            "rerank",
        ),
        (of("Qwen3ForCausalLM"), {"--hf-overrides": "{"}, "generate"),
    ],
)
def test_the_kind_is_vllms(config: dict[str, Any] | None, given: dict[str, Any], name: str) -> None:
    found, problems = kind.find("", config, given, ARGS)
    assert (found.name, problems) == (name, [])
    assert found.pooling == (name != "generate")
    assert not found.pooling or found.why


@pytest.mark.parametrize(
    "architecture", ["Qwen2ForRewardModel", "BertForTokenClassification", "HF_ColBERT", "BertForSequenceClassification"]
)
def test_other_pooling_models_are_refused(architecture: str) -> None:
    (problem,) = kind.find("", of(architecture), {}, ARGS)[1]
    assert problem.path == "gb10_model" and architecture in problem.found
    assert kind.find("embed", of(architecture), {}, ARGS)[1] == []


def test_an_entry_declares_its_kind() -> None:
    assert kind.find("rerank", of("Qwen3ForCausalLM"), {}, ARGS)[0] == kind.Kind("rerank", "its entry declares it")
    assert kind.find("rerank", of("Qwen3ForCausalLM"), {"--runner": "pooling"}, ARGS)[1] == []
    (problem,) = kind.find("embed", SCORE, {"--runner": "generate"}, ARGS)[1]
    assert (problem.path, problem.found) == (f"{ARGS}.--runner", "--runner generate")


@pytest.mark.parametrize(
    ("more", "given", "dimension"),
    [
        ({}, {}, 256),
        ({"text_config": {"hidden_size": 64}}, {}, 64),
        ({kind.MODULES: ["Transformer", "Pooling", "Dense"]}, {}, 0),
        ({"hidden_size": None}, {}, 0),
        ({}, {"--pooler-config": '{"dimensions": 32}'}, 32),
    ],
)
def test_the_dimension(more: dict[str, Any], given: dict[str, Any], dimension: int) -> None:
    assert kind.find("embed", {**of("LlamaModel"), **more}, given, ARGS)[0].dimension == dimension


OVERRIDES = (
    '--hf-overrides={"architectures":["Qwen3ForSequenceClassification"],"classifier_from_token":["no","yes"],'
    '"is_original_qwen3_reranker":true}'
)


@pytest.mark.parametrize(
    ("name", "config", "given", "args", "refused"),
    [
        ("embed", of("LlamaForCausalLM"), {}, ["--convert=embed"], []),
        ("embed", of("LlamaModel"), {}, [], []),
        ("rerank", SCORE, {}, [], []),
        ("rerank", of("Qwen3ForCausalLM"), {}, [OVERRIDES], []),
        ("rerank", of("Qwen3ForCausalLM"), {"--hf-overrides": "{}"}, [], []),
        ("rerank", of("LlamaForCausalLM"), {}, [], ["a reranker with the architecture LlamaForCausalLM"]),
    ],
)
def test_a_generating_architecture_is_converted(
    name: str, config: dict[str, Any], given: dict[str, str], args: list[str], refused: list[str]
) -> None:
    runner = {"--runner": "pooling"}
    found, _why, problems = kind.pooling_arguments(kind.Kind(name), config, runner, given, ARGS)
    assert (found, [problem.found for problem in problems]) == (args, refused)


def test_arguments_of_generation_are_refused() -> None:
    given = dict.fromkeys(
        ("--speculative-config.model", "--tool-call-parser", "--reasoning-parser", "--max-model-len"), "x"
    )
    assert kind.pooling_arguments(kind.Kind(), None, given, given, ARGS) == ([], [], [])
    found = kind.pooling_arguments(kind.Kind("embed"), None, given, {"--tool-server": "x"}, ARGS)[2]
    assert [problem.path for problem in found] == [
        *(f"{ARGS}.{name}" for name in list(given)[:3]),
        "gb10_vllm_extra_args.--tool-server",
    ]


@pytest.mark.parametrize(
    ("model", "number"),
    [
        ("bge-m3", 567_754_752),
        ("qwen3-embedding-0.6b", 595_776_512),
        ("qwen3-embedding-4b", 4_021_774_336),
        ("qwen3-embedding-8b", 7_567_295_488),
        ("qwen3-reranker-0.6b", 595_776_512),
    ],
)
def test_dimensions_give_the_published_parameters(model: str, number: int) -> None:
    assert parameters(shape(catalog.known()[model].config)) == number


def test_an_encoder_needs_no_kv_cache() -> None:
    bge = catalog.known()["bge-m3"]
    found = memory_plan.plan(
        memory_schema.Inputs(
            shape(bge.config),
            [memory_schema.MemoryNode("spark1", True, 128 * 10**9)],
            1,
            weights_bytes=bge.weights_bytes,
        )
    )
    assert (found.fits, found.context, found.tokens, found.nodes[0].kv) == (True, 8192, 0, 0)
    assert not [word for word in found.arguments if "kv-cache" in word]
    assert "fits: an encoder needs no KV cache; texts of up to 8192 tokens" in memory_plan.explain(found, False)
    small = memory_plan.plan(
        memory_schema.Inputs(shape(bge.config), [memory_schema.MemoryNode("spark1", True, 4 * 10**9)], 1)
    )
    assert not small.fits and small.problems


@pytest.mark.parametrize("value", [None, {}, "text"])
def test_modules_of_another_type_are_none(value: Any) -> None:
    config = of("LlamaForCausalLM")
    assert kind.with_modules(config, value) is config
    assert kind.with_modules(None, MODULES) is None
