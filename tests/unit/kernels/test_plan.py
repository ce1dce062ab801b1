"""Tests of the compilation of FlashInfer's kernels: its identity, unit, progress and results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cluster_nodes import LOCK, cluster_plan, spark
from decisions import decide
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_start, plan

TOOLKIT = {
    "home": "/usr/local/cuda",
    "release": "13.0.88",
    "architectures": ["sm_121"],
    "reason": "",
    "host_compiler": True,
}
MODEL = "/srv/models/tiny"
VARIABLES = {
    "PATH": "/r/bin:/usr/bin",
    "CUDA_HOME": "/usr/local/cuda",
    "VLLM_HOST_IP": "10.110.0.1",
    "NCCL_DEBUG": "INFO",
    "VLLM_X": "1",
}
BUILT = ".cache/flashinfer/0.7.2.post1/121a/cached_ops/sampling/sampling.so"


def pair(**settings: Any) -> list[dict[str, Any]]:
    nodes = [spark(1, "head", **settings), spark(2, "worker", **settings)]
    for node in nodes:
        node["observed"]["toolkit"] = TOOLKIT
    return nodes


def kernels(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the kernels of each node."""
    planned, problems = cluster_plan(nodes, LOCK)
    assert problems == []
    return [plan.of_node(typed({**planned, "node": node})) for node in planned["nodes"]]


def test_equal_nodes_share_their_kernels_and_others_do_not() -> None:
    nodes = pair(gb10_flashinfer=True)
    head, worker = kernels(nodes)
    assert head["name"] == worker["name"]
    assert head["argv"][0] == MODEL
    nodes[1]["observed"]["toolkit"] = {**TOOLKIT, "release": "13.1.80"}
    head, worker = kernels(nodes)
    assert head["name"] != worker["name"]


@pytest.mark.parametrize(
    ("argv", "same"),
    [
        (["/m", "--attention-backend=FLASHINFER", "--kv-cache-memory-bytes=2", "--port=9"], True),
        (["/m", "--attention-backend=FLASHINFER", "--kv-cache-dtype=fp8"], False),
        (["/other", "--attention-backend=FLASHINFER"], False),
    ],
)
def test_the_identity_depends_on_what_is_compiled(argv: list[str], same: bool) -> None:
    base = plan.identity(
        "/r", "12.1", "13.0.88", ["/m", "--attention-backend=FLASHINFER", "--kv-cache-memory-bytes=1"], VARIABLES
    )
    assert (
        plan.identity("/r", "12.1", "13.0.88", argv, {**VARIABLES, "NCCL_DEBUG": "WARN", "VLLM_HOST_IP": "10.110.0.2"})
        == base
    ) == same
    assert plan.identity("/r", "12.1", "13.0.88", argv, {**VARIABLES, "VLLM_X": "2"}) != base


def test_the_unit_has_no_network_and_no_rights() -> None:
    argv = plan.unit_argv("/r/bin/python", "code", "0123", ["/m"], VARIABLES, 3, 60)
    assert argv[-4:] == ["/r/bin/python", "-c", "code", "/m"]
    for line in (
        "DynamicUser=yes",
        "PrivateNetwork=yes",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
    ):
        assert f"--property={line}" in argv
    variables = dict(word.removeprefix("--setenv=").split("=", 1) for word in argv if word.startswith("--setenv="))
    assert (variables["PATH"], variables["CUDA_HOME"], variables["MAX_JOBS"]) == (
        "/r/bin:/usr/bin",
        "/usr/local/cuda",
        "3",
    )
    assert variables["VLLM_X"] == "1"
    assert variables["VLLM_HOST_IP"] == "127.0.0.1", "the fabric's address is not in the unit's network"
    assert not any(name.startswith("NCCL") for name in variables)
    assert not any("ReadWritePaths" in word for word in argv)


@pytest.mark.parametrize(
    ("unit", "state"),
    [
        ({"ActiveState": "inactive", "SubState": "dead", "Description": plan.UNIT}, "none"),
        (
            {"ActiveState": "active", "SubState": "running", "Description": "Compile FlashInfer's kernels 0123"},
            "running",
        ),
        (
            {"ActiveState": "active", "SubState": "exited", "Description": "Compile FlashInfer's kernels 0123"},
            "finished",
        ),
        ({"ActiveState": "failed", "SubState": "failed", "Description": "Compile FlashInfer's kernels 0123"}, "failed"),
        # The unit of another model is replaced.
        ({"ActiveState": "active", "SubState": "running", "Description": "Compile FlashInfer's kernels 4567"}, "none"),
    ],
)
def test_progress(unit: dict[str, str], state: str) -> None:
    files = [
        BUILT,
        BUILT.replace("sampling.so", "renorm.cuda.o"),
        "other/file.so",
        ".cache/flashinfer/0.7/121a/cached_ops/a/../b.so",
    ]
    assert plan.progress(unit, "0123", files) == plan.Progress(state, 1, 1)


def test_only_modules_with_their_folders_name_are_results() -> None:
    assert plan.built([BUILT, BUILT.replace("sampling.so", "other.so"), "x" + BUILT, f"{BUILT}.tmp"]) == {
        "sampling": BUILT
    }


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"name": "4567", "modules": {}}', '{"name": "0123", "modules": {"../x": "00"}}']
)
def test_a_damaged_manifest_means_that_nothing_is_stored(text: str) -> None:
    assert plan.parse_manifest(text, "0123") is None


def test_a_manifest_is_read_again() -> None:
    modules = {"sampling": "0" * 64}
    assert plan.parse_manifest(plan.manifest("0123", modules, 2), "0123") == modules


@pytest.mark.parametrize(
    ("kinds", "dense", "count", "layers"),
    [
        ([], 0, 36, 2),
        (["sliding", "full"] * 18, 0, 36, 2),
        (["linear"] * 3 + ["full"], 0, 4, 4),
        ("MEMEM*EM", 0, 8, 6),
        ([], 3, 61, 4),
        ([], 0, 1, 1),
    ],
)
def test_the_first_layers_have_every_kind(kinds: Any, dense: int, count: int, layers: int) -> None:
    assert io_start.needed_layers(kinds, dense, count) == layers


def test_a_configuration_is_shortened_with_its_lists() -> None:
    text = SimpleNamespace(
        num_hidden_layers=8, layer_types=["a", "a", "a", "b"] * 2, hybrid_override_pattern=None, rope=[1, 2]
    )
    whole = SimpleNamespace(get_text_config=lambda: text)
    assert io_start.shortened(whole) is whole
    assert (text.num_hidden_layers, text.layer_types, text.rope) == (4, ["a", "a", "a", "b"], [1, 2])


def test_an_empty_configuration_stays_as_it_is() -> None:
    # vLLM 0.24 first applies the function to one.
    empty = SimpleNamespace()
    assert io_start.shortened(empty) is empty


def asked(nodes: list[dict[str, Any]], index: int, **serve: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result of the action on a node, and the arguments of its module."""
    planned, problems = cluster_plan(nodes, LOCK)
    assert problems == []
    fact = {**planned, "node": planned["nodes"][index], "serve": {**planned["serve"], **serve}}
    return decide(
        "flashinfer_kernels", {"planned": True, "seconds": 9}, fact, result={"changed": True, "state": "ready"}
    )


def test_the_action_takes_the_kernels_from_the_plan() -> None:
    for index, shared in enumerate((False, True)):
        answer, (given,) = asked(pair(), index)
        assert answer == {"changed": True, "state": "ready", "shared": shared}
        assert given == {**kernels(pair())[index], "seconds": 9}
        assert given["python"].endswith("/bin/python") and given["name"]


def test_without_kernels_the_node_is_not_touched() -> None:
    answer, calls = asked(pair(), 0, compiled=[])
    assert (answer["changed"], answer["state"], answer["shared"], calls) == (False, "none", False, [])


def test_a_task_without_a_plan_has_its_own_kernels() -> None:
    own = {"python": "/venv/bin/python", "name": "0123"}
    answer, calls = decide("flashinfer_kernels", own, {}, result={"changed": False, "state": "missing"})
    assert (answer, calls) == ({"changed": False, "state": "missing"}, [own])
