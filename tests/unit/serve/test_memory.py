"""Each knob that documentation and symptoms name lowers the planned memory; refused values; the table in
docs/operations.md."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cluster_nodes import Node, cluster_plan, mistakes, spark
from repository import ROOT, read
from snapshot import assert_recorded
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import PREFIX
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import GIB

#: MemTotal of users' Sparks: 127600748 kB.
MEMORY = 127_600_748 * 1024
PAGE = ROOT / "docs" / "operations.md"
MODELS = ("gpt-oss-120b", "qwen3.8-27b-nvfp4")
ARGS = f"{PREFIX}vllm_extra_args"
#: Settings by their text in the table, for one and for two Sparks: a limit has an effect only below the default's
#: memory.
KNOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "`gb10_max_model_len: 4096`": ({"gb10_max_model_len": 4096},) * 2,
    "`gb10_max_num_seqs: 4`": ({"gb10_max_num_seqs": 4},) * 2,
    "`gb10_kv_cache_contexts: 4`, `gb10_kv_cache_tokens_per_request: 4096`": (
        {"gb10_kv_cache_contexts": 4, "gb10_kv_cache_tokens_per_request": 4096},
    )
    * 2,
    "`gb10_memory_reserve`: 45, two Sparks 80": ({"gb10_memory_reserve": 45}, {"gb10_memory_reserve": 80}),
    "`--gpu-memory-utilization`: 0.62, two Sparks 0.33": (
        {ARGS: ["--gpu-memory-utilization", "0.62"]},
        {ARGS: ["--gpu-memory-utilization=0.33"]},
    ),
    "`--kv-cache-memory-bytes=4G`": ({ARGS: ["--kv-cache-memory-bytes=4G"]},) * 2,
}


def sparks(count: int, **settings: Any) -> list[Node]:
    nodes = [spark(number, "worker" if number > 1 else "head", **settings) for number in range(1, count + 1)]
    for node in nodes:
        node["observed"]["model"] = None
        node["observed"]["gpu"]["memory_bytes"] = MEMORY
    return nodes


def planned(model: str, count: int, **settings: Any) -> dict[str, Any]:
    plan, problems = cluster_plan(sparks(count, gb10_model=model, **settings))
    assert problems == []
    return plan


def needed(plan: dict[str, Any]) -> int:
    """Return the planned bytes of the fullest node."""
    return int(max(plan["serve"]["needs"].values()))


def table() -> list[str]:
    heads = [f"{model}, {'one Spark' if count == 1 else 'two Sparks'}" for model in MODELS for count in (1, 2)]
    lines = [f"| GiB of each Spark | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for knob, settings in KNOBS.items():
        cells = [
            f"{needed(planned(model, count, **settings[count - 1])) / GIB:.1f}" for model in MODELS for count in (1, 2)
        ]
        lines.append(f"| {knob} | {' | '.join(cells)} |")
    return lines


def test_the_table_of_the_documentation_is_the_plans() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert_recorded(
        PAGE, re.sub(r"^\| GiB of each Spark .*?(?=\n\n)", "\n".join(table()), text, flags=re.MULTILINE | re.DOTALL)
    )
    assert "\n| default |" in text


@pytest.mark.parametrize("knob", [knob for knob in KNOBS if knob != "default"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_a_knob_lowers_the_planned_memory(model: str, count: int, knob: str) -> None:
    default, changed = planned(model, count), planned(model, count, **KNOBS[knob][count - 1])
    assert needed(changed) < needed(default)
    argv = launch_argv.vllm_argv(typed({**changed, "node": changed["nodes"][0]}))
    shares = [word.partition("=")[2] for word in argv if "utilization" in word]
    # One share is passed, and it is not below the planned memory, which must be free at the start.
    assert [float(share) * MEMORY >= needed(changed) for share in shares] == [True]
    assert float(shares[0]) * MEMORY < needed(changed) + 0.02 * MEMORY
    given = [word for word in argv if word.startswith("--kv-cache-memory-bytes")]
    assert given[-1] == "--kv-cache-memory-bytes=4G" if "=4G" in knob else len(given) == 1


@pytest.mark.parametrize(
    "symptom", ["compiler-out-of-memory", "gpu-out-of-memory", "host-lost", "memory-exhausted", "oom-killer", "xid-43"]
)
def test_a_fix_for_too_little_memory_names_only_knobs(symptom: str) -> None:
    (fix,) = re.findall(
        rf"^### {symptom}$.*?^- Fix: (.*?)(?:; rules: .*?)?$", read("docs/troubleshooting.md"), re.MULTILINE | re.DOTALL
    )
    knobs = {name for settings in KNOBS.values() for each in settings for name in each}
    named = set(re.findall(r"gb10_\w+", fix)) - {"gb10_extra_env"}
    assert named
    assert named <= knobs
    assert "utilization" not in fix


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_25_gib_stay_unplanned(model: str, count: int) -> None:
    assert MEMORY - needed(planned(model, count)) >= 25 * GIB
    # CUDA's own free memory ended at 101 GiB on a pair (docs/operations.md).
    assert needed(planned(model, count, gb10_kv_cache_contexts=0)) < 97 * GIB


def test_the_share_of_the_user_is_a_limit_and_the_plan_passes_its_own() -> None:
    for words in (["--gpu-memory-utilization", "0.87"], ["--gpu_memory_utilization=0.87"]):
        plan = planned("gpt-oss-120b", 2, gb10_vllm_extra_args=[*words, "--seed", "1"])
        assert plan["serve"]["user_args"] == ["--seed", "1"]
        assert (
            f"{' '.join(words)} is replaced: the memory plan takes at most this share, and passes its own"
            in plan["serve"]["why"]
        )
        assert needed(plan) == needed(planned("gpt-oss-120b", 2)), "more than the reserve leaves"
    unplanned = planned("somebody/some-model", 2, gb10_vllm_extra_args=["--gpu-memory-utilization", "0.5"])
    assert unplanned["serve"]["user_args"] == ["--gpu-memory-utilization", "0.5"]


def test_the_number_of_requests_is_the_users_and_else_64() -> None:
    def given(model: str, **settings: Any) -> list[str]:
        plan = planned(model, 2, **settings)
        return [word for word in (*plan["serve"]["args"], *plan["serve"]["user_args"]) if "seqs" in word]

    for model in ("gpt-oss-120b", "somebody/some-model", "bge-m3"):
        assert given(model) == ["--max-num-seqs=64"]
        assert given(model, gb10_max_num_seqs=200) == ["--max-num-seqs=200"]
        assert given(model, gb10_vllm_extra_args=["--max-num-seqs=200"]) == ["--max-num-seqs=200"]
    own = {"gpt-oss-120b": {"args": ["--max-num-seqs=100"]}}
    assert given("gpt-oss-120b", gb10_models=own) == ["--max-num-seqs=100"]


REFUSED: dict[str, tuple[str, dict[str, Any], str, str, str, str]] = {
    "more requests than blocks of states": (
        "nemotron-3-super-120b-a12b-nvfp4",
        {"gb10_max_num_seqs": 512},
        "gb10_max_num_seqs",
        "512, with memory for",
        "vLLM refuses to start with more",
        "lower it to",
    ),
    "the same as an argument": (
        "nemotron-3-super-120b-a12b-nvfp4",
        {"gb10_vllm_extra_args": ["--max-num-seqs", "512"]},
        "gb10_vllm_extra_args.--max-num-seqs",
        "512, with memory for",
        "vLLM refuses to start with more",
        "lower it to",
    ),
    "a share that is no share": (
        "gpt-oss-120b",
        {"gb10_vllm_extra_args": ["--gpu-memory-utilization=80"]},
        "gb10_vllm_extra_args.--gpu-memory-utilization",
        "--gpu-memory-utilization=80",
        "above 0 and at most 1",
        "correct --gpu-memory-utilization",
    ),
    "a share without a number": (
        "gpt-oss-120b",
        {"gb10_vllm_extra_args": ["--gpu-memory-utilization=most"]},
        "gb10_vllm_extra_args.--gpu-memory-utilization",
        "--gpu-memory-utilization=most",
        "above 0 and at most 1",
        "correct --gpu-memory-utilization",
    ),
    "a share below the weights": (
        "gpt-oss-120b",
        {"gb10_vllm_extra_args": ["--gpu-memory-utilization=0.5"]},
        "gb10_model",
        "GiB larger than the cluster",
        "without the reserve of 25 GiB, and within the share 0.5",
        "lower gb10_memory_reserve or raise --gpu-memory-utilization, or use a model that fits: ",
    ),
    "a reserve of the whole memory": (
        "gpt-oss-120b",
        {"gb10_memory_reserve": 122},
        "gb10_memory_reserve",
        "122 GiB",
        "less than the 121.7 GiB of the smallest node",
        "lower gb10_memory_reserve",
    ),
    "a number of 400 digits": (
        "gpt-oss-120b",
        {"gb10_vllm_extra_args": ["--kv-cache-memory-bytes", "9" * 400]},
        "gb10_model",
        "GiB larger than the cluster",
        "within each node's memory",
        "add nodes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_value_is_a_problem_of_the_plan(case: str) -> None:
    model, settings, path, found, expected, fix = REFUSED[case]
    (problem,) = mistakes(sparks(1, gb10_model=model, **settings))
    assert problem.path == path
    assert found in problem.found
    assert expected in problem.expected
    assert fix in problem.fix


def test_adapters_need_memory_on_each_rank() -> None:
    plan = planned("gpt-oss-120b", 2, **{ARGS: ["--enable-lora", "--max-lora-rank=32"]})
    (line,) = (line for line in plan["serve"]["why"] if line.startswith("LoRA: up to "))
    assert line.endswith(" for --max-loras=1 and --max-cpu-loras=1 of --max-lora-rank=32, an estimate")
    assert needed(plan) > needed(planned("gpt-oss-120b", 2)), "each expert has matrices of its own"
