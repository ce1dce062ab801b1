"""What is decided about a model on a cluster, and the text that a person reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nodes import KNOWN, Node, mistakes, spark
from repository import ROOT
from serving import MEMORY, SHAPES, argv, inputs
from snapshot import assert_recorded

from ansible_collections.gb10.cluster.plugins.module_utils import catalogue, cluster, plan_text, serve_plan, stacks, vllm_release

SNAPSHOT = Path(__file__).parent / "data" / "plan_two_spark.txt"
LOCKS = {name: (ROOT / "roles/gb10/files" / stack.lock).read_text(encoding="utf-8") for name, stack in stacks.STACKS.items() if stack.lock}


def sparks(count: int, **settings: Any) -> list[Node]:
    """Nodes whose model is one of the hub: nothing of it was read."""
    nodes = [spark(number, "worker" if number > 1 else "head", **settings) for number in range(1, count + 1)]
    for node in nodes:
        node["observed"]["model"] = None
    return nodes


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", catalogue.known())
@pytest.mark.parametrize("stack", stacks.STACKS)
def test_every_release_takes_what_is_planned_for_it(stack: str, model: str, shape: str) -> None:
    count, thors = SHAPES[shape]
    given = inputs(model, stack, count, thors)
    decision = serve_plan.decide(given)
    said = {problem.path for problem in decision.problems}
    assert said <= {"gb10_model", "gb10_stack"}, decision.problems
    release = stacks.STACKS[stack].vllm
    # Too large a model, and one that the release does not know, are told; whatever is planned, the release takes.
    values, problems = vllm_release.parse(argv(given, decision), release)
    if "gb10_stack" not in said:
        assert problems == []
    assert values["--tensor-parallel-size"] == str(decision.tensor)
    assert decision.tensor * decision.pipeline == count
    if thors:
        assert decision.tensor == 1


def test_the_plan_of_two_sparks_reads_as_reviewed() -> None:
    plan, problems = cluster.plan(sparks(2, gb10_model="openai/gpt-oss-120b"), LOCKS["current"], KNOWN)
    assert problems == []
    text = "\n".join(plan_text.lines(plan, 1 << 30)) + "\n"
    assert_recorded(SNAPSHOT, text)


def arguments(given: serve_plan.Inputs) -> dict[str, Any]:
    values, problems = vllm_release.parse(serve_plan.decide(given).args, given.stack.vllm)
    assert problems == []
    return values


def test_key_value_memory_is_given_in_bytes() -> None:
    values = arguments(inputs("gpt-oss-120b"))
    assert 20 * 2**30 < int(values["--kv-cache-memory-bytes"]) < 0.85 * MEMORY
    assert float(values["--gpu-memory-utilization"]) <= 0.85


def test_what_the_users_arguments_say_of_memory_counts() -> None:
    decision = serve_plan.decide(inputs("llama-3.1-8b-instruct", gb10_serve_args=["--max-model-len", "4096", "--max-num-seqs=4"]))
    assert decision.memory is not None
    assert (decision.memory.context, decision.memory.sequences) == (4096, 4)


def test_of_an_unknown_model_no_memory_is_planned() -> None:
    decision = serve_plan.decide(inputs("somebody/some-model"))
    assert decision.problems == []
    assert decision.args == ["--gpu-memory-utilization=0.8"]
    assert "memory is not planned: no config.json was read" in decision.why[0]


def test_nothing_is_said_of_the_memory_of_a_cpu() -> None:
    assert not any("memory" in word for word in serve_plan.decide(inputs("gpt-oss-20b", "lab")).args)


def test_heads_that_do_not_divide_leave_the_rest_to_the_pipeline() -> None:
    decision = serve_plan.decide(inputs("phi-4", count=4))
    assert (decision.tensor, decision.pipeline) == (2, 2)
    assert any("heads do not divide by 4" in line for line in decision.why)


def test_a_replica_on_each_node_has_all_of_the_model() -> None:
    given = inputs("llama-3.1-8b-instruct", gb10_data_parallel_size=2)
    small = {**given.nodes[1], "memory_bytes": MEMORY // 2}
    decision = serve_plan.decide(serve_plan.Inputs(**{**vars(given), "nodes": [given.nodes[0], small]}))
    assert (decision.problems, decision.tensor, decision.pipeline) == ([], 1, 1)
    assert decision.memory is not None
    alone = serve_plan.decide(serve_plan.Inputs(**{**vars(inputs("llama-3.1-8b-instruct", count=1)), "nodes": [small]}))
    assert alone.memory is not None
    assert decision.memory.weights == alone.memory.weights
    assert [word for word in decision.args if "memory" in word] == [word for word in alone.args if "memory" in word]


def test_experts_are_spread_where_there_are_any() -> None:
    decision = serve_plan.decide(inputs("gpt-oss-120b", gb10_expert_parallel=True))
    assert (decision.problems, "--enable-expert-parallel" in decision.args) == ([], True)
    (problem,) = serve_plan.decide(inputs("phi-4", gb10_expert_parallel=True)).problems
    assert (problem.path, problem.found) == ("gb10_expert_parallel", "phi-4 has no experts")
    # Over replicas, a rank has a part of the experts and all of the rest, which is counted nowhere.
    both = serve_plan.decide(inputs("gpt-oss-120b", gb10_expert_parallel=True, gb10_data_parallel_size=2))
    assert both.memory is None
    assert any("experts are spread over replicas" in line for line in both.why)


def test_eager_only_where_a_thor_needs_it() -> None:
    def eager(release: str, thors: int, **environment: str) -> bool:
        given = inputs("gpt-oss-20b", count=2, thors=thors)
        nodes = [{**node, "environment": {**node["environment"], **environment}} for node in given.nodes]
        stack = stacks.Stack("current", vllm=release, cuda=13)
        return "--enforce-eager" in serve_plan.decide(serve_plan.Inputs(**{**vars(given), "stack": stack, "nodes": nodes})).args

    assert eager("0.24.0", 1)
    assert not eager("0.24.0", 0), "a Spark needs none"
    assert not eager("0.27.0", 1), "its Triton knows sm_110a"
    assert not eager("0.24.0", 1, TRITON_PTXAS_PATH="/usr/local/cuda/bin/ptxas")
    own = serve_plan.decide(inputs("gpt-oss-20b", "vllm-0.18.1", 2, 1, gb10_serve_args=["--enforce-eager"]))
    assert "--enforce-eager" not in own.args, "once is enough"


def test_a_release_beyond_the_table_is_said_not_judged() -> None:
    given = inputs("gpt-oss-20b", gb10_serve_args=["--no-such-thing"])
    later = serve_plan.Inputs(**{**vars(given), "stack": stacks.Stack("current", vllm="9.9.9", cuda=13)})
    decision = serve_plan.decide(later)
    assert decision.problems == []
    assert any("9.9.9 is not in the table" in line for line in decision.why)
    asked = vllm_release.options("0.32.0")
    (problem,) = serve_plan.decide(serve_plan.Inputs(**{**vars(later), "asked": asked})).problems
    assert problem.path == "gb10_serve_args[0]"


def test_a_reasoning_models_answer_has_room() -> None:
    assert serve_plan.decide(inputs("gpt-oss-20b")).smoke_tokens == 512
    assert serve_plan.decide(inputs("phi-4")).smoke_tokens == 8


def test_what_a_model_is_served_with_is_fetched_and_named() -> None:
    decision = serve_plan.decide(inputs("nemotron-3-super-120b-a12b-nvfp4"))
    (file,) = decision.files
    assert len(file["sha256"]) == 64
    assert f"--reasoning-parser-plugin={file['path']}" in decision.args


BAD = {
    "removed argument": ({"gb10_serve_args": ["--swap-space", "16"]}, ["gb10_serve_args[0]", "--swap-space", "0.18"]),
    "unread variable": (
        {"gb10_environment": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}},
        ["gb10_environment.VLLM_ATTENTION_BACKEND", "--attention-backend"],
    ),
    "too long a context": ({"gb10_max_model_len": 900_000}, ["--max-model-len", "900000", "131072"]),
    "contradiction": ({"gb10_serve_args": ["-tp", "1"]}, ["gb10_serve_args.--tensor-parallel-size", "gb10_tensor_parallel_size"]),
    "other port": ({"gb10_serve_args": ["--port=8001"]}, ["gb10_serve_args.--port", "gb10_api_port"]),
    "waiver without reason": ({"gb10_serve_waivers": {"enforce-eager": ""}}, ["gb10_serve_waivers.enforce-eager", "reason"]),
    "waiver of nothing": ({"gb10_serve_waivers": {"no-such-rule": "because"}}, ["gb10_serve_waivers.no-such-rule", "docs/rules.md"]),
    "error of a rule": (
        {"gb10_serve_args": ["--gpu-memory-utilization=0.95"]},
        ["gb10_serve_args.--gpu-memory-utilization", "gb10_serve_waivers.memory-utilization-ceiling"],
    ),
    "unknown model": ({"gb10_model": "gpt-oss-12b"}, ["gb10_model", "gpt-oss-120b"]),
    "unknown key of a model": ({"gb10_models": {"mine": {"hub": "a/b", "tensorr": 2}}}, ["gb10_models.mine.tensorr", "tensor"]),
    "unknown stack": ({"gb10_stack": "curent"}, ["gb10_stack", "current"]),
}


@pytest.mark.parametrize("mistake", BAD)
def test_a_mistake_is_named(mistake: str) -> None:
    settings, words = BAD[mistake]
    problems = mistakes(sparks(2, **{"gb10_model": "gpt-oss-120b", **settings}))
    said = "\n".join(map(str, problems))
    for word in words:
        assert word in said


def test_all_mistakes_are_listed_together() -> None:
    settings = {
        "gb10_serve_args": ["--swap-space", "16", "-tp", "1", "--port=8001"],
        "gb10_environment": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"},
        "gb10_max_model_len": 900_000,
        "gb10_fabric_mtu": 70000,
    }
    said = "\n".join(map(str, mistakes(sparks(2, gb10_model="gpt-oss-120b", **settings))))
    for word in ("gb10_fabric_mtu", "--swap-space", "VLLM_ATTENTION_BACKEND", "--max-model-len", "gb10_serve_args.--port"):
        assert word in said


def test_too_large_a_model_names_those_that_fit() -> None:
    (problem,) = mistakes(sparks(1, gb10_model="qwen2.5-72b-instruct"))
    assert "GiB larger than the cluster: spark1 lacks" in problem.found
    assert "gpt-oss-120b" in problem.fix
    assert "llama-3.1-70b-instruct" not in problem.fix


def test_heads_that_do_not_divide_are_named() -> None:
    nodes = sparks(4, gb10_model="phi-4", gb10_tensor_parallel_size=4, gb10_fabric_topology="switch")
    (problem,) = mistakes(nodes)
    assert (problem.path, problem.found) == ("gb10_tensor_parallel_size", "4 ranks for 10 key/value heads")
    assert "pipeline parallelism for the rest" in problem.fix


def test_a_model_that_the_release_does_not_have_is_named() -> None:
    own = {"mine": {"hub": "somebody/mine", "requires": {"since": "0.33.0"}}}
    (problem,) = mistakes(sparks(2, gb10_model="mine", gb10_models=own))
    assert problem.path == "gb10_stack"
    assert problem.expected == "vLLM since 0.33.0"
