"""Tests of the compilation of FlashInfer's kernels: its identity, unit, progress and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_nodes import LOCK, cluster_plan, spark
from decisions import decide
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_start, plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

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
    "change",
    [
        lambda whole: replace(whole, serve=replace(whole.serve, compiled=())),
        lambda whole: replace(whole, model="org/name"),
        lambda whole: replace(whole, node=replace(whole.node, capability="")),
        lambda whole: replace(whole, runtime=typed({"runtime": {"kind": "podman", "image": "vllm"}}).runtime),
    ],
)
def test_a_plan_needs_a_kernel_a_stored_model_a_gpu_and_an_environment(change: Callable[[Plan], Plan]) -> None:
    planned, _problems = cluster_plan(pair(), LOCK)
    whole = typed({**planned, "node": planned["nodes"][0]})
    assert plan.of_node(whole)
    assert plan.of_node(change(whole)) == {}


@pytest.mark.parametrize(
    ("argv", "changes", "same"),
    [
        (["/m", "--attention-backend=FLASHINFER", "--kv-cache-memory-bytes=2", "--port=9"], {}, True),
        (["/m", "--attention-backend=FLASHINFER", "--kv-cache-dtype=fp8"], {}, False),
        (["/other", "--attention-backend=FLASHINFER"], {}, False),
        (["/m", "--attention-backend=FLASHINFER"], {"NCCL_DEBUG": "WARN", "VLLM_HOST_IP": "10.110.0.2"}, True),
        (["/m", "--attention-backend=FLASHINFER"], {"VLLM_X": "2"}, False),
    ],
)
def test_the_identity_depends_on_what_is_compiled(argv: list[str], changes: dict[str, str], same: bool) -> None:
    base = ["/m", "--attention-backend=FLASHINFER", "--kv-cache-memory-bytes=1"]
    names = [
        plan.identity("/r", "12.1", "13.0.88", words, variables)
        for words, variables in ((base, VARIABLES), (argv, VARIABLES | changes))
    ]
    assert (names[0] == names[1]) is same


def test_the_unit_has_no_network_and_no_rights() -> None:
    argv = plan.unit_argv("/r/bin/python", "code", "0123", ["/m"], VARIABLES, 3, 60)
    assert argv[-4:] == ["/r/bin/python", "-c", "code", "/m"]
    confined = "DynamicUser=yes PrivateNetwork=yes NoNewPrivileges=yes CapabilityBoundingSet= ProtectSystem=strict"
    assert {f"--property={line}" for line in confined.split()} <= set(argv)
    # The fabric's address and NCCL's variables are not in the unit's network.
    assert dict(word.removeprefix("--setenv=").split("=", 1) for word in argv if word.startswith("--setenv=")) == {
        "CUDA_HOME": "/usr/local/cuda",
        "VLLM_X": "1",
        "PATH": "/r/bin:/usr/bin",
        "MAX_JOBS": "3",
        "HOME": "/var/cache/gb10-kernels",
        "FLASHINFER_WORKSPACE_BASE": "/var/cache/gb10-kernels",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    assert not any("ReadWritePaths" in word for word in argv)


def test_the_progress_counts_modules_and_objects() -> None:
    objects = [BUILT.replace("sampling.so", "renorm.cuda.o"), ".cache/flashinfer/0.7/121a/cached_ops/a/../b.so"]
    assert plan.progress("running", [BUILT, "other/file.so", *objects]) == plan.Progress("running", 1, 1)


def test_only_modules_with_their_folders_name_are_results() -> None:
    assert plan.built([BUILT, BUILT.replace("sampling.so", "other.so"), "x" + BUILT, f"{BUILT}.tmp"]) == {
        "sampling": BUILT
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": "4567", "modules": {}}',
        '{"name": "0123", "modules": []}',
        plan.manifest("0123", {"../x": "0" * 64}, 2),
        plan.manifest("0123", {"x": "00"}, 2),
    ],
)
def test_a_damaged_manifest_means_that_nothing_is_stored(text: str) -> None:
    assert plan.parse_manifest(text, "0123") is None
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
    text = SimpleNamespace(num_hidden_layers=8, layer_types=["a", "a", "a", "b"] * 2, pattern=None, rope=[1, 2])
    whole = SimpleNamespace(get_text_config=lambda: text)
    assert io_start.shortened(whole) is whole
    assert vars(text) == {"num_hidden_layers": 4, "layer_types": ["a", "a", "a", "b"], "pattern": None, "rope": [1, 2]}
    # Layers before the first one with experts.
    dense = SimpleNamespace(num_hidden_layers=8, first_k_dense_replace=3)
    assert io_start.shortened(dense).num_hidden_layers == 4
    # vLLM 0.24 first applies the function to an empty one.
    empty = SimpleNamespace()
    assert io_start.shortened(empty) is empty


def asked(nodes: list[dict[str, Any]], index: int, **serve: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result of the action on a node, and the arguments of its module."""
    planned, problems = cluster_plan(nodes, LOCK)
    assert problems == []
    fact = {**planned, "node": planned["nodes"][index], "serve": {**planned["serve"], **serve}}
    return decide("flashinfer_kernels", {"seconds": 9}, fact, result={"changed": True, "state": "ready"})


def test_the_action_takes_the_kernels_from_the_plan() -> None:
    of_nodes = kernels(pair())
    for index, shared in enumerate((False, True)):
        answer = {"changed": True, "state": "ready", "shared": shared}
        assert asked(pair(), index) == (answer, [{**of_nodes[index], "seconds": 9, "archive": None, "pack": None}])
    none = {"changed": False, "state": "none", "line": "nothing to compile", "modules": {}, "shared": False}
    assert asked(pair(), 0, compiled=[]) == (none, [])
