"""Tests of the serving decisions for a model on a cluster, and of the plan's text."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import Node, cluster_plan, mistakes, spark
from plans import EACH_STACK, MEMORY, SHAPES, argv, inputs, without_own_arguments
from repository import ROOT
from snapshot import assert_recorded
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, drafts
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import read_config
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Rest
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import memory as serve_memory
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

SNAPSHOT = Path(__file__).parents[1] / "data" / "plan_two_spark.txt"
LOCKS = {
    name: (ROOT / "roles/gb10/files" / stack.lock).read_text(encoding="utf-8")
    for name, stack in stacks.STACKS.items()
    if stack.lock
}


def sparks(count: int, **settings: Any) -> list[Node]:
    """Return nodes whose model is on Hugging Face Hub and was not read."""
    nodes = [spark(number, "worker" if number > 1 else "head", **settings) for number in range(1, count + 1)]
    for node in nodes:
        node["observed"]["model"] = None
    return nodes


@pytest.mark.parametrize(("extra", "said"), [({}, True), ({"VLLM_MARLIN_USE_ATOMIC_ADD": "0"}, False)])
def test_no_reason_contradicts_a_value_of_the_user(extra: dict[str, str], said: bool) -> None:
    plan, problems = cluster_plan(sparks(2, gb10_model="gpt-oss-120b", gb10_extra_env=extra))
    assert problems == []
    assert any(why.startswith("VLLM_MARLIN_USE_ATOMIC_ADD=1") for why in plan["serve"]["why"]) is said


#: The models of the catalog that read a text at once, without a KV cache.
ENCODERS = {"bge-m3", "bge-reranker-v2-m3"}


def without_ray(stack: str) -> dict[str, Any]:
    """Return the setting that a stack needs if its image has no Ray."""
    return {"gb10_distributed_executor_backend": "mp"} if stacks.STACKS[stack].image else {}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", [name for name, model in catalog.known().items() if not model.image])
@pytest.mark.parametrize("stack", EACH_STACK)
def test_every_release_takes_what_is_planned_for_it(stack: str, model: str, shape: str) -> None:
    count, thors = SHAPES[shape]
    given = inputs(model, stack, count, thors, **without_ray(stack))
    decision = serve_plan.decide(given)
    said = {problem.path for problem in decision.problems}
    assert said <= {"gb10_model", "gb10_stack"}, decision.problems
    release = stacks.STACKS[stack].vllm
    # A model that is too large or unknown to the release is reported. The release accepts every planned argument.
    values, problems = vllm_release_checks.parse(argv(given, decision), release)
    if "gb10_stack" not in said:
        assert problems == []
    assert values["--tensor-parallel-size"] == str(decision.tensor)
    # Every node is used, by a replica if the memory is planned and the model generates nothing.
    replicas = count if decision.kind.pooling and decision.memory else 1
    assert (decision.tensor * decision.pipeline, decision.data) == (count // replicas, replicas)
    if thors:
        # vLLM does not divide the layers of an encoder over pipeline stages.
        assert decision.tensor == (count if model in ENCODERS and replicas == 1 else 1)
    if stacks.STACKS[stack].device != stacks.CUDA or shape != "two" or "gb10_stack" in said:
        return
    # The catalog draws no warning of its kernels, and needs a CUDA compiler only for what an entry names or leaves.
    assert not rules(decision) & {"flashinfer-autotune", "flashinfer-fp8", "fp4-moe-path"}
    assert decision.environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    words = set(zip(given.model.entry.args, given.model.entry.args[1:], strict=False))
    named = {"attention": ("--attention-backend", "FLASHINFER"), "experts": ("--moe-backend", "auto")}
    native = stacks.STACKS[stack].runtime == stacks.NATIVE
    assert decision.compiled == [part for part, argument in named.items() if native and argument in words]


def test_the_plan_of_two_sparks_reads_as_reviewed() -> None:
    plan, problems = cluster_plan(sparks(2, gb10_model="qwen3.8-27b-nvfp4-dflash2"), LOCKS["current"])
    assert problems == []
    text = "\n".join(cluster_report.lines(typed(plan), 1 << 30)) + "\n"
    assert_recorded(SNAPSHOT, text)
    settings = {"vllm_serve_memory_floor": 2.0, "vllm_serve_memory_guard": "restart", "vllm_watchdog_mode": "auto"}
    settings["gb10_idle_stop"] = ""
    watched = cluster_report.guards(settings, Rest(0, 8009))
    assert watched == ["memory guard: restart below 2 GiB available", "watchdog: auto"]
    assert set(watched) < set(cluster_report.lines(typed(plan), 1 << 30, watched))
    assert cluster_report.guards({**settings, "vllm_serve_memory_floor": 0}, Rest(0, 8009))[0] == "memory guard: off"
    settings["gb10_idle_stop"] = "30m"
    rests = cluster_report.guards(settings, Rest(1800, 8009))[-1]
    assert rests == "rest: after 30m without a request; the next one to the gateway starts the model"
    unwatched = cluster_report.guards({**settings, "vllm_watchdog_mode": False}, Rest(0, 8009))[-1]
    assert unwatched == "rest: never, because the watchdog is off"
    # The findings come before the commands, and the answer last.
    assert (
        text.index("\nfindings:\n")
        < text.index("/vllm serve")
        < text.index(" 2 nodes: fits, ")
        < text.index("\nAPI at ")
    )
    begin = text.index("\n  /opt/gb10/runtime/", text.index("(head, "))
    commands = text[begin : text.index("  VLLM_HOST_IP=", begin)]
    assert all(len(line) <= 76 or len(line.split()) <= 2 for line in commands.splitlines())
    script = commands.replace("\n  /opt/gb10/runtime", "\necho /opt")
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[1] for line in ran] == ["start", "serve"]
    assert ran[1].split()[2:] == launch_argv.vllm_argv(typed({**plan, "node": plan["nodes"][0]}))[2:]


FASTER = (
    "info: 2 nodes reach 108.6 tokens/s for one request, these 3 54.6; use spark3 for another model (docs/clusters.md)"
)


@pytest.mark.parametrize(
    ("count", "settings", "expected"),
    [
        (2, {}, []),
        (3, {}, [FASTER]),
        (3, {"gb10_data_parallel_size": 3}, []),
        # The third node is for the context, or for the weights.
        (3, {"gb10_memory_reserve": 82}, []),
        (3, {"gb10_memory_reserve": 84}, []),
        (4, {}, []),
    ],
)
def test_nodes_that_make_a_model_slower_are_reported(count: int, settings: dict[str, Any], expected: list[str]) -> None:
    topology = "switch" if count > 2 else "auto"
    plan, problems = cluster_plan(
        sparks(count, gb10_model="openai/gpt-oss-120b", gb10_fabric_topology=topology, **settings), LOCKS["current"]
    )
    assert problems == []
    assert [finding for finding in plan["serve"]["findings"] if "another model" in finding] == expected


@pytest.mark.parametrize(
    ("model", "count", "settings", "expected"),
    [
        ("qwen2.5-7b-instruct", 3, {}, 3),
        # Two stages of two ranks are faster than one node, one node does not hold the context, or experts are shared.
        ("llama-3.1-8b-instruct", 4, {"gb10_tensor_parallel_size": 2}, 0),
        ("qwen2.5-7b-instruct", 3, {"gb10_memory_reserve": 106}, 0),
        ("gpt-oss-120b", 3, {}, 0),
        ("qwen2.5-7b-instruct", 2, {}, 0),
    ],
)
def test_replicas_are_advised_where_stages_do_not_help(
    model: str, count: int, settings: dict[str, Any], expected: int
) -> None:
    topology = "switch" if count > 2 else "auto"
    plan, problems = cluster_plan(
        sparks(count, gb10_model=model, gb10_fabric_topology=topology, **settings), LOCKS["current"]
    )
    assert problems == []
    found = [finding for finding in plan["serve"]["findings"] if "times as many requests" in finding]
    advice = (
        f"info: one node holds the model, and {expected} stages are not faster; gb10_data_parallel_size: "
        f"{expected} serves"
    )
    assert [finding.partition(f" {expected} times")[0] for finding in found] == ([advice] if expected else [])


@pytest.mark.parametrize(
    ("model", "stack", "given", "off"),
    [
        ("qwen3.5-122b-a10b-fp8", "vllm-0.18.1", [], True),
        ("qwen3.5-122b-a10b-fp8", "vllm-0.18.1", ["--enable-prefix-caching"], False),
        ("qwen3.5-122b-a10b-fp8", "current", [], False),
        ("phi-4", "vllm-0.18.1", [], False),
    ],
)
def test_the_plan_says_where_prefixes_are_not_kept(model: str, stack: str, given: list[str], off: bool) -> None:
    why = serve_plan.decide(inputs(model, stack, gb10_vllm_extra_args=given)).why
    assert any(line.startswith("prefix caching is off: ") for line in why) is off


def arguments(given: serve_plan.Inputs) -> dict[str, Any]:
    values, problems = vllm_release_checks.parse(serve_plan.decide(given).args, given.stack.vllm)
    assert problems == []
    return values


def test_key_value_memory_is_given_in_bytes() -> None:
    values = arguments(inputs("gpt-oss-120b"))
    assert 20 * 2**30 < int(values["--kv-cache-memory-bytes"]) < 0.85 * MEMORY
    assert float(values["--gpu-memory-utilization"]) <= 0.85


def test_what_the_users_arguments_say_of_memory_counts() -> None:
    decision = serve_plan.decide(
        inputs("llama-3.1-8b-instruct", gb10_vllm_extra_args=["--max-model-len", "4096", "--max-num-seqs=4"])
    )
    assert decision.memory is not None
    assert (decision.memory.context, decision.memory.max_num_seqs) == (4096, 4)


@pytest.mark.parametrize(
    ("method", "layers", "states"),
    [
        ({"method": "mtp", "num_speculative_tokens": 3}, 1, 3),
        ({"method": "qwen3_next_mtp", "num_speculative_tokens": 1}, 1, 1),
        ({"method": "mtp", "model": "owner/draft", "num_speculative_tokens": 4}, 0, 4),
        ({"method": "dflash", "model": "owner/draft"}, 0, 0),
        ({"method": "mtp", "num_speculative_tokens": "many"}, 1, 0),
    ],
)
def test_speculative_decoding_needs_states_and_a_layers_cache(method: dict[str, Any], layers: int, states: int) -> None:
    given = inputs("qwen3.6-35b-a3b-nvfp4", count=1)
    shape = given.model.config.shape
    assert shape is not None
    found = serve_memory._speculating(shape, Arguments({"--speculative-config": json.dumps(method)}))
    assert {layer.kv_cache.pages for layer in found.layers if layer.kv_cache.kind == "state"} == {2 + states}
    assert found.of("full") == shape.of("full") + layers == 10 + layers
    own = {option: str(method[key]) for option, key in drafts.KEYS.items() if key in method}
    assert serve_memory._speculating(shape, Arguments(own)) == found
    assert serve_memory._speculating(shape, Arguments({})) == shape
    # A model without states or keys and values has none of it.
    plain = read_config({**catalog.find("phi-4").config}).shape
    assert plain is not None
    assert (
        len(serve_memory._speculating(plain, Arguments({"--speculative-config": json.dumps(method)})).layers)
        == 40 + layers
    )


def test_a_draft_leaves_fewer_sequences_in_the_same_memory() -> None:
    given = inputs("nemotron-3-super-120b-a12b-nvfp4", count=1)
    entry = given.model.entry
    plain = replace(given, model=replace(given.model, entry=replace(entry, args=entry.args[:-2])))
    drafted, without = serve_plan.decide(given).memory, serve_plan.decide(plain).memory
    assert drafted and without
    assert drafted.max_num_seqs < without.max_num_seqs and drafted.tokens < without.tokens


def test_a_model_without_a_memory_plan_needs_the_nodes_of_its_entry() -> None:
    (problem,) = serve_plan.decide(inputs("mine", count=1, gb10_models={"mine": {"hub": "a/b", "nodes": 2}})).problems
    assert (problem.path, problem.fix) == ("gb10_model", "use 2 Sparks, or another model")
    assert "mine is larger than the cluster: it needs 2 Sparks of 128 GB" in problem.found
    known = {"mine": {"hub": "a/b", "nodes": 2, "max_model_len": 8192}}
    decision = serve_plan.decide(inputs("mine", count=2, gb10_models=known))
    assert decision.problems == [] and "--max-model-len=8192" in decision.args


def test_of_an_unknown_model_and_on_a_cpu_no_memory_is_planned() -> None:
    decision = serve_plan.decide(inputs("somebody/some-model"))
    assert decision.problems == []
    assert not any("memory" in word for word in serve_plan.decide(inputs("gpt-oss-20b", "lab")).args)
    # 25 of 119.7 GiB stay free.
    assert decision.args == ["--gpu-memory-utilization=0.79", "--max-num-seqs=64", "--no-enable-flashinfer-autotune"]
    assert "memory is not planned: no config.json was read" in decision.why[0]


def test_one_node_has_no_reason_for_its_split() -> None:
    one, two = (serve_plan.decide(inputs("phi-4", count=count)) for count in (1, 2))
    assert [any(line.startswith("tensor ") for line in decision.why) for decision in (one, two)] == [False, True]


@pytest.mark.parametrize("max_num_seqs", [0, 8])
@pytest.mark.parametrize(("model", "planned"), [("gpt-oss-20b", True), ("somebody/some-model", False)])
def test_the_plan_says_what_a_recipe_leaves_to_vllm(model: str, planned: bool, max_num_seqs: int) -> None:
    given = inputs(model, gb10_max_num_seqs=max_num_seqs)
    decision = serve_plan.decide(replace(given, model=replace(given.model, recipe=True)))
    (left,) = (line for line in decision.why if line.startswith("left to vLLM, as the image was tested: "))
    assert "--attention-backend" in left
    assert ("--max-num-seqs" in left) is not bool(planned or max_num_seqs), "the plan or the user sets it"


def test_heads_that_do_not_divide_leave_the_rest_to_the_pipeline() -> None:
    decision = serve_plan.decide(inputs("phi-4", count=4))
    assert (decision.tensor, decision.pipeline) == (2, 2)
    assert any("heads are not divisible by 4" in line for line in decision.why)


def test_a_replica_on_each_node_has_all_of_the_model() -> None:
    given = inputs("llama-3.1-8b-instruct", gb10_data_parallel_size=2)
    small = replace(given.nodes[1], memory_bytes=MEMORY // 2)
    decision = serve_plan.decide(replace(given, nodes=[given.nodes[0], small]))
    assert (decision.problems, decision.tensor, decision.pipeline) == ([], 1, 1)
    assert decision.memory is not None
    alone = serve_plan.decide(replace(inputs("llama-3.1-8b-instruct", count=1), nodes=[small]))
    assert alone.memory is not None
    assert decision.memory.weights == alone.memory.weights
    assert [word for word in decision.args if "memory" in word] == [word for word in alone.args if "memory" in word]


def test_experts_are_spread_where_there_are_any() -> None:
    decision = serve_plan.decide(inputs("gpt-oss-120b", gb10_expert_parallel=True))
    assert (decision.problems, "--enable-expert-parallel" in decision.args) == ([], True)
    assert decision.memory is not None
    (problem,) = serve_plan.decide(inputs("phi-4", gb10_expert_parallel=True)).problems
    assert (problem.path, problem.found) == ("gb10_expert_parallel", "phi-4 has no experts")
    # With replicas a rank has some experts and all other weights. The memory plan does not support this.
    both = serve_plan.decide(inputs("gpt-oss-120b", gb10_expert_parallel=True, gb10_data_parallel_size=2))
    assert both.memory is None
    assert any("experts are distributed over replicas" in line for line in both.why)


def test_eager_only_where_a_thor_needs_it() -> None:
    def eager(release: str, thors: int, **environment: str) -> bool:
        given = inputs("gpt-oss-20b", count=2, thors=thors)
        nodes = [replace(node, environment={**node.environment, **environment}) for node in given.nodes]
        stack = stacks.Stack("current", vllm=release, cuda=13)
        return (
            "--enforce-eager"
            in serve_plan.decide(
                replace(given, stack=stack, release=vllm_release_checks.of_runtime(release), nodes=nodes)
            ).args
        )

    assert eager("0.24.0", 1)
    assert not eager("0.24.0", 0), "a Spark does not need it"
    assert not eager("0.27.0", 1), "its Triton supports sm_110a"
    assert not eager("0.24.0", 1, TRITON_PTXAS_PATH="/usr/local/cuda/bin/ptxas")
    own = serve_plan.decide(inputs("gpt-oss-20b", "vllm-0.18.1", 2, 1, gb10_vllm_extra_args=["--enforce-eager"]))
    assert "--enforce-eager" not in own.args, "once is enough"


def test_a_release_beyond_the_table_is_said_not_judged() -> None:
    given = inputs("gpt-oss-20b", gb10_vllm_extra_args=["--no-such-thing"])
    later = replace(
        given, stack=stacks.Stack("current", vllm="9.9.9", cuda=13), release=vllm_release_checks.of_runtime("9.9.9")
    )
    decision = serve_plan.decide(later)
    assert decision.problems == []
    assert any("9.9.9 is not in the table" in line for line in decision.why)
    queried = replace(later.release, queried=True, options=vllm_release_checks.options("0.32.0"))
    (problem,) = serve_plan.decide(replace(later, release=queried)).problems
    assert problem.path == "gb10_vllm_extra_args[0]"


def test_what_a_model_is_served_with_is_fetched_and_named() -> None:
    decision = serve_plan.decide(inputs("qwen3-reranker-0.6b"))
    (file,) = decision.files
    assert (len(file.sha256), f"--chat-template={file.path}" in decision.args) == (64, True)
    assert serve_plan.decide(inputs("nemotron-3-super-120b-a12b-nvfp4")).smoke_tokens == 512
    assert serve_plan.decide(inputs("phi-4")).smoke_tokens == 8, "it does not reason"


BAD = {
    "removed argument": (
        {"gb10_vllm_extra_args": ["--swap-space", "16"]},
        ["gb10_vllm_extra_args[0]", "--swap-space", "0.18"],
    ),
    "unread variable": (
        {"gb10_extra_env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}},
        ["gb10_extra_env.VLLM_ATTENTION_BACKEND", "--attention-backend"],
    ),
    "a negative context": (
        {"gb10_max_model_len": -1},
        ["gb10_max_model_len: -1. Expected: 1 to 131072, ", "or 0 for the largest", "Fix: set gb10_max_model_len: 0."],
    ),
    "too long a context": ({"gb10_max_model_len": 900_000}, ["gb10_max_model_len", "900000", "131072"]),
    "contradiction": (
        {"gb10_vllm_extra_args": ["-tp", "1"]},
        ["gb10_vllm_extra_args.--tensor-parallel-size", "gb10_tensor_parallel_size"],
    ),
    "other port": ({"gb10_vllm_extra_args": ["--port=8001"]}, ["gb10_vllm_extra_args.--port", "gb10_api_port"]),
    "waiver without reason": (
        {"gb10_serve_waivers": {"enforce-eager": ""}},
        ["gb10_serve_waivers.enforce-eager", "reason"],
    ),
    "waiver of nothing": (
        {"gb10_serve_waivers": {"no-such-rule": "because"}},
        ["gb10_serve_waivers.no-such-rule", "docs/rules.md"],
    ),
    "error of a rule": (
        {"gb10_model": "somebody/some-model", "gb10_vllm_extra_args": ["--gpu-memory-utilization=0.95"]},
        ["gb10_vllm_extra_args.--gpu-memory-utilization", "gb10_serve_waivers.memory-utilization-ceiling"],
    ),
    "unknown model": ({"gb10_model": "gpt-oss-12b"}, ["gb10_model", "gpt-oss-120b"]),
    "unknown key of a model": (
        {"gb10_models": {"mine": {"hub": "a/b", "tensorr": 2}}},
        ["gb10_models.mine.tensorr", "tensor"],
    ),
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
        "gb10_vllm_extra_args": ["--swap-space", "16", "-tp", "1", "--port=8001"],
        "gb10_extra_env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"},
        "gb10_max_model_len": 900_000,
        "gb10_fabric_mtu": 70000,
    }
    said = "\n".join(map(str, mistakes(sparks(2, gb10_model="gpt-oss-120b", **settings))))
    for word in (
        "gb10_fabric_mtu",
        "--swap-space",
        "VLLM_ATTENTION_BACKEND",
        "gb10_max_model_len",
        "gb10_vllm_extra_args.--port",
    ):
        assert word in said


def test_too_large_a_model_names_those_that_fit() -> None:
    (problem,) = mistakes(sparks(1, gb10_model="qwen2.5-72b-instruct"))
    assert "GiB larger than the cluster at 4096 tokens of context: spark1 lacks" in problem.found
    named, _and, more = problem.fix.partition("or use a model that fits: ")[2].partition(", and ")
    assert (len(named.split(", ")), "llama-3.1-70b-instruct" in named) == (5, False)
    assert more.split(maxsplit=1)[1] == "more: playbooks/models.yml" and int(more.split()[0]) > 20


def test_models_that_fit_leave_the_reserve() -> None:
    (problem,) = serve_plan.decide(inputs("phi-4", count=1, gb10_memory_reserve=100)).problems
    named, _and, more = problem.fix.partition("or use a model that fits: ")[2].partition(", and ")
    small = {model.name for model in catalog.known().values() if (model.weights_bytes or MEMORY) < MEMORY - 100 * 2**30}
    assert set(named.split(", ")) < small and 5 < 5 + int(more.split()[0]) <= len(small)


def test_heads_that_do_not_divide_are_named() -> None:
    nodes = sparks(4, gb10_model="phi-4", gb10_tensor_parallel_size=4, gb10_fabric_topology="switch")
    (problem,) = mistakes(nodes)
    assert (problem.path, problem.found) == ("gb10_tensor_parallel_size", "4 ranks for 10 key/value heads")
    assert "pipeline parallelism for the other nodes" in problem.fix


def test_a_model_that_the_release_does_not_have_is_named() -> None:
    own = {"mine": {"hub": "somebody/mine", "requires": {"since": "0.33.0"}}}
    (problem,) = mistakes(sparks(2, gb10_model="mine", gb10_models=own))
    assert problem.path == "gb10_stack"
    assert problem.expected == "vLLM since 0.33.0"


def rules(decision: serve_plan.Decision) -> set[str]:
    return {finding.check.id for finding in decision.findings}


def warned(nodes: list[Node]) -> str:
    """Return the warnings of the cluster plan."""
    plan, problems = cluster_plan(nodes, LOCKS["current"])
    assert problems == []
    return "\n".join(plan["serve"]["warnings"])


def test_nodes_are_judged_with_what_the_plan_and_the_catalog_set() -> None:
    assert "nccl-cross-nic" not in warned(sparks(2, gb10_model="gpt-oss-120b"))
    assert "nccl-cross-nic" in warned(sparks(2, gb10_model="gpt-oss-120b", gb10_extra_env=CROSSED))
    own = {"gpt-oss-120b": {"environment": CROSSED}}
    assert "nccl-cross-nic" in warned(sparks(2, gb10_model="gpt-oss-120b", gb10_models=own))
    own = {"gpt-oss-20b": {"environment": {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}}}
    thors = inputs("gpt-oss-20b", "vllm-0.18.1", 2, 1, gb10_models=own)
    assert "--enforce-eager" not in serve_plan.decide(thors).args, "an assembler in the model's entry counts too"


CROSSED = {"NCCL_CROSS_NIC": "1"}


def test_the_share_that_the_plan_passes_is_judged() -> None:
    high = {"gb10_memory_reserve": 13, "gb10_kv_cache_contexts": 0}
    assert "memory-utilization-high" in rules(serve_plan.decide(inputs("gpt-oss-120b", **high)))
    given = inputs("gpt-oss-120b", gb10_vllm_extra_args=["--gpu-memory-utilization=0.88"])
    assert "memory-utilization-high" not in rules(serve_plan.decide(given)), "the plan passes its own share"


def test_a_finding_names_the_source_of_a_value_that_the_user_did_not_set() -> None:
    def places(given: serve_plan.Inputs) -> dict[str, str]:
        return {finding.check.id: finding.place for finding in serve_plan.decide(given).findings}

    high = {"gb10_memory_reserve": 13, "gb10_kv_cache_contexts": 0}
    share = ["--gpu-memory-utilization=0.95"]
    for own in ({}, {"gb10_vllm_extra_args": share}):
        found = places(inputs("gpt-oss-120b", **high, **own))
        assert found["memory-utilization-high"] == "planned --gpu-memory-utilization"
    assert found["memory-utilization-replaced"] == "gb10_vllm_extra_args"
    given = inputs("gpt-oss-120b")
    half = [replace(node, environment={**node.environment, "NCCL_CROSS_NIC": "1"}) for node in given.nodes]
    assert places(replace(given, nodes=half))["nccl-cross-nic"] == "planned NCCL_CROSS_NIC"
    set_so = replace(given, nodes=half, settings=replace(given.settings, extra_env=CROSSED))
    assert places(set_so)["nccl-cross-nic"] == "gb10_extra_env.NCCL_CROSS_NIC"


def test_a_key_value_cache_that_the_checkpoint_has_in_fp8_is_one() -> None:
    given = inputs("qwen2.5-7b-instruct", "ngc-26.04")
    assert given.model.config.raw is not None
    scheme = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    config = read_config({**given.model.config.raw, "quantization_config": scheme})
    calibrated = replace(given, model=replace(given.model, config=config))
    flashinfer = replace(calibrated.settings, flashinfer=True)
    assert "flashinfer-fp8" in rules(serve_plan.decide(replace(calibrated, settings=flashinfer)))
    assert "flashinfer-fp8" not in rules(serve_plan.decide(calibrated))
    config = read_config({**given.model.config.raw, "quantization_config": {**scheme, "kv_cache_quant_algo": ""}})
    plain = replace(given, model=replace(given.model, config=config))
    assert "flashinfer-fp8" not in rules(serve_plan.decide(plain))
    own = replace(flashinfer, vllm_extra_args=["--kv-cache-dtype=bfloat16"])
    assert "flashinfer-fp8" not in rules(serve_plan.decide(replace(calibrated, settings=own)))


def test_arguments_are_not_checked_against_a_release_that_lacks_the_model() -> None:
    own = {"gpt-oss-20b": {"requires": {"since": "0.19.1"}, "args": ["--reasoning-parser", "gemma4"]}}
    (problem,) = serve_plan.decide(inputs("gpt-oss-20b", "vllm-0.18.1", gb10_models=own)).problems
    assert (problem.path, problem.expected) == ("gb10_stack", "vLLM since 0.19.1")


def test_a_variable_replaces_the_models_type_of_the_key_value_cache() -> None:
    own = {"gpt-oss-20b": {"args": ["--kv-cache-dtype", "fp8", "--trust-remote-code"]}}
    plain, other = (
        serve_plan.decide(inputs("gpt-oss-20b", gb10_models=own, gb10_kv_cache_dtype=dtype))
        for dtype in ("auto", "bfloat16")
    )
    assert plain.memory is not None
    assert other.memory is not None
    assert (plain.memory.kv_dtype, other.memory.kv_dtype) == ("fp8", "bfloat16")
    assert [word for word in other.args if "kv-cache-dtype" in word or word in ("fp8", "--trust-remote-code")] == [
        "--kv-cache-dtype=bfloat16",
        "--trust-remote-code",
    ]


def test_a_stack_sets_its_variables() -> None:
    nvfp4 = inputs("nemotron-3-nano-30b-a3b-nvfp4", "ngc-26.04", gb10_distributed_executor_backend="mp")
    decision = serve_plan.decide(nvfp4)
    assert (
        decision.environment.items() >= {"VLLM_USE_FLASHINFER_MOE_FP4": "0", "VLLM_MARLIN_USE_ATOMIC_ADD": "1"}.items()
    )
    assert "VLLM_USE_FLASHINFER_MOE_FP4=0: the stack ngc-26.04 sets it" in decision.why
    # The model's own argument appears once.
    assert [word for word in decision.args if "moe-backend" in word] == ["--moe-backend"]


@pytest.mark.parametrize(
    ("own", "left"),
    [
        (["--attention-backend", "FLASHINFER"], ["--moe-backend=marlin"]),
        (["--attention-config", '{"backend": "FLASHINFER"}'], ["--moe-backend=marlin"]),
        (["--attention-config.backend=FLASHINFER"], ["--moe-backend=marlin"]),
        (["--moe-backend=flashinfer_cutlass"], ["--attention-backend=TRITON_ATTN"]),
        (["--kernel-config.moe_backend", "triton"], ["--attention-backend=TRITON_ATTN"]),
    ],
)
def test_the_users_arguments_replace_the_named_backends(own: list[str], left: list[str]) -> None:
    given = inputs(
        "nemotron-3-super-120b-a12b-nvfp4",
        "ngc-26.04",
        gb10_distributed_executor_backend="mp",
        gb10_vllm_extra_args=own,
    )
    decision = serve_plan.decide(without_own_arguments(given))
    assert [word for word in decision.args if "-backend" in word] == left


def test_the_users_variables_take_the_place_of_the_stacks() -> None:
    name = "VLLM_USE_FLASHINFER_MOE_FP4"
    settings = {
        "gb10_model": "gpt-oss-120b",
        "gb10_stack": "ngc-26.04",
        "gb10_distributed_executor_backend": "mp",
        "gb10_extra_env": {name: "1"},
    }
    nodes = sparks(2, **settings, gb10_runtime_lock="")
    plan, problems = cluster_plan(nodes, "")
    assert problems == []
    assert {node["environment"][name] for node in plan["nodes"]} == {"1"}
    assert not any(line.startswith(f"{name}=") for line in plan["serve"]["why"])


def test_an_image_without_ray_is_refused_to_who_wants_ray() -> None:
    settings = {"gb10_model": "gpt-oss-120b", "gb10_stack": "ngc-26.04", "gb10_runtime_lock": ""}
    _plan, (problem,) = cluster_plan(sparks(2, **settings), "")
    assert problem.path == "image"
    assert problem.fix.startswith("set gb10_distributed_executor_backend: mp, or use an image with a layer that")
    assert cluster_plan(sparks(2, **settings, gb10_distributed_executor_backend="mp"), "")[1] == []
    derived = f"registry.example/vllm@sha256:{'1' * 64}"
    assert cluster_plan(sparks(2, **settings, gb10_container_image=derived), "")[1] == [], "other images are unknown"


@pytest.mark.parametrize(
    ("args", "path", "found"),
    [
        (["--network=bridge"], "gb10_container_args[0]", "bridge"),
        (["--shm-size=1g", "--network", "bridge"], "gb10_container_args[1]", "bridge"),
        (["--net=mine"], "gb10_container_args[0]", "mine"),
        (["--net", "none"], "gb10_container_args[0]", "none"),
        (["--net=host", "--net=mine"], "gb10_container_args[1]", "mine"),
        (["--ipc=private"], "gb10_container_args[0]", "--ipc=private"),
        (["--ipc", "none"], "gb10_container_args[0]", "--ipc=none"),
        (["--user=0"], "gb10_container_args[0]", "--user=0"),
        (["--user", "root"], "gb10_container_args[0]", "--user=root"),
        (["-u", "root"], "gb10_container_args[0]", "--user=root"),
        (["-uroot"], "gb10_container_args[0]", "--user=root"),
        (["--pid=host"], "gb10_container_args[0]", "--pid=host"),
        (["--pid", "host"], "gb10_container_args[0]", "--pid=host"),
        (["--network=host"], "", ""),
        (["--net", "host"], "", ""),
        (["--ipc=host"], "", ""),
        (["--userns=host"], "", ""),
        (["--pids-limit=-1"], "", ""),
    ],
)
def test_a_container_that_is_cut_off_is_refused_before_anything_changes(args: list[str], path: str, found: str) -> None:
    container = {
        "gb10_model": "gpt-oss-120b",
        "gb10_runtime": "container",
        "gb10_container_image": f"a@sha256:{'1' * 64}",
    }
    problems = cluster_plan(sparks(2, **container, gb10_container_args=args))[1]
    if not found:
        assert problems == []
        return
    (problem,) = problems
    assert (problem.path, problem.found) == (path, found)
    assert "gb10_serve_waivers.bridge-network" in problem.fix


def test_media_come_from_the_given_hosts_alone() -> None:
    decision = serve_plan.decide(inputs("gpt-oss-20b", gb10_api_media_domains=["a.example", "10.0.0.7"]))
    words = decision.args
    start = words.index("--allowed-media-domains")
    assert words[start : start + 3] == ["--allowed-media-domains", "a.example", "10.0.0.7"]
    assert decision.environment["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"
    plain = serve_plan.decide(inputs("gpt-oss-20b"))
    assert "--allowed-media-domains" not in plain.args and "VLLM_MEDIA_URL_ALLOW_REDIRECTS" not in plain.environment


def test_pages_of_the_given_origins_use_the_api() -> None:
    words = serve_plan.decide(
        inputs("gpt-oss-20b", gb10_api_origins=["https://chat.example", "http://localhost:3000"])
    ).args
    assert words[words.index("--allowed-origins") + 1] == '["https://chat.example", "http://localhost:3000"]'
    assert "--allowed-origins" not in serve_plan.decide(inputs("gpt-oss-20b")).args


@pytest.mark.parametrize(
    ("name", "option", "good", "bad"),
    [
        (
            "gb10_api_origins",
            "--allowed-origins",
            "*",
            ["chat.example", "https://chat.example/", "https://a b", "--x", ""],
        ),
        (
            "gb10_api_media_domains",
            "--allowed-media-domains",
            "a.example",
            ["--trust-remote-code", "https://a.example", "a.example/x", "a.example:80", "A.example", "", "a b"],
        ),
    ],
)
def test_an_origin_has_no_path_and_a_host_of_media_is_a_name_alone(
    name: str, option: str, good: str, bad: list[str]
) -> None:
    for value in bad:
        decision = serve_plan.decide(inputs("gpt-oss-20b", **{name: [good, value]}))
        assert [problem.path for problem in decision.problems] == [f"{name}[1]"]
        assert option not in decision.args
