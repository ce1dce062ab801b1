"""Tests of a build of vLLM in the plan of containers: its image, the image's name before the build, and its
problems."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import pytest
from cluster_nodes import LOCK, Node, lock_of, mistakes, pair, parts, planned, queried

BASE = "vllm/vllm-openai@sha256:" + "1" * 64
TORCH = LOCK + lock_of("torch==2.13.0+cpu")
COMMIT = "7" * 40
CONTAINER = {"gb10_runtime": "container", "gb10_container_image": BASE, "gb10_distributed_executor_backend": "mp"}
NATIVE = {"gb10_runtime": "native", "gb10_container_image": ""}
WHEEL = "vllm-0.32.0+gb10.ab-cp312-cp312-linux_aarch64.whl"
LAYER = {"name": "own", "folder": "/srv/own", "digest": "d", "packages": [], "network": False, "problem": ""}


def wanted(enabled: Any = True, build: dict[str, Any] | None = None, **settings: Any) -> list[Node]:
    """Return two nodes with containers that want a build of vLLM."""
    nodes = pair(**{**CONTAINER, **settings})
    for node in nodes:
        node["build"] = {**node["build"], "enabled": enabled, "commit": COMMIT, "version": "", **(build or {})}
    return nodes


def built(nodes: list[Node], *indices: int, sha256: str = "5" * 64, wheel: str = WHEEL) -> list[Node]:
    """Add the planned build to the stores of nodes, by default to the head's."""
    item = planned(copy.deepcopy(nodes), TORCH)["build"]
    for index in indices or (0,):
        found = [{"name": item["name"], "wheel": wheel, "sha256": sha256}]
        nodes[index]["observed"]["vllm_build"] = {"builds": found}
    return nodes


#: Nodes, and parts of their plan.
PLANS: dict[str, tuple[list[Node], dict[str, Any]]] = {
    "a finished build": (
        built(wanted()),
        {
            "build.state": "ready",
            "build.nodes": ["spark1"],
            "build.capabilities": ["12.1"],
            "build.torch": "2.13.0",
            "runtime.base": BASE,
            "runtime.builds.0.base": BASE,
            "runtime.builds.0.sha256": "5" * 64,
            "runtime.lock": "vllm.lock",
            "runtime.options_of": "",
            "stack.vllm": "0.32.0",
            "nodes.0.wheels": [],
            "nodes.1.wheels": [],
        },
    ),
    "a build": (wanted(), {"build.state": "missing"}),
    "a build on a worker alone": (built(wanted(), 1), {"build.state": "missing"}),
    **{
        f"a wheel with the name {name!r}": (
            built(wanted(), wheel=name),
            {"build.state": "missing", "build.wheel": ""},
        )
        for name in ("../../vllm.whl", "vllm.whl\nRUN x", "vllm")
    },
    "no build": (wanted(False), {"runtime.image": BASE}),
    "a queried image": (queried(wanted(), BASE, version="0.32.0"), {"build.state": "missing"}),
    "a build for an environment on one node": (built(wanted(**NATIVE)), {"build.state": "missing"}),
    "a build for an environment": (
        built(wanted(**NATIVE), 0, 1),
        {
            "build.state": "ready",
            "build.nodes": ["spark1", "spark2"],
            "runtime.builds": [],
            "nodes.1.runtime_mark": f"{hashlib.sha256(TORCH.encode()).hexdigest()}\n{'5' * 64}\n",
            **{
                f"nodes.{index}.wheels.0.{name}": value
                for index in (0, 1)
                for name, value in (("sha256", "5" * 64), ("built", True))
            },
        },
    ),
}


@pytest.mark.parametrize(("nodes", "expected"), PLANS.values(), ids=PLANS)
def test_parts_of_a_plan_with_a_build(nodes: list[Node], expected: dict[str, Any]) -> None:
    assert parts(planned(nodes, TORCH), expected) == expected


def test_the_ranks_run_the_image_with_the_wheel_below_the_users_layers() -> None:
    plan = planned(built(wanted()), TORCH)
    item, runtime = plan["build"], plan["runtime"]
    assert runtime["builds"][0]["wheel"] == f"/opt/gb10/build/wheels/{item['name']}/{item['wheel']}"
    assert runtime["image"] == runtime["name"] == runtime["builds"][0]["image"]
    layered = planned(built(wanted()), TORCH, layers=[LAYER])["runtime"]
    wheel, own = layered["builds"]
    assert (wheel["sha256"], own["folder"], own["base"]) == ("5" * 64, "/srv/own", wheel["image"])
    assert layered["image"] == own["image"]


def test_each_build_has_an_image_of_its_own() -> None:
    several = (wanted(), wanted(build={"commit": "8" * 40}), built(wanted()), built(wanted(), sha256="6" * 64))
    assert len({BASE, *(planned(nodes, TORCH)["runtime"]["image"] for nodes in several)}) == 5


def test_a_query_of_the_image_does_not_change_the_build() -> None:
    before = planned(built(wanted()), TORCH)
    after = planned(queried(built(wanted()), before["runtime"]["image"], version="0.32.0+gb10.ab"), TORCH)
    places = ("build", "runtime.image")
    assert parts(after, places) == parts(before, places)
    assert after["runtime"]["options_of"] == "2" * 64


REFUSED: dict[str, tuple[list[Node], str, str, str]] = {
    "no lock": (
        wanted(gb10_stack="ngc-26.04", gb10_runtime_lock="", gb10_container_image=""),
        "",
        "vllm_build_enabled: the runtime has no lock. ",
        "",
    ),
    "a lock without torch": (wanted(), LOCK, "gb10_runtime_lock: it pins no torch. ", ""),
    "a lock without hashes": (
        wanted(),
        TORCH + "numpy==2.4.0\n",
        "gb10_runtime_lock: vllm.lock has releases without hash (line 7: numpy==2.4.0). ",
        "",
    ),
    "an image of another release": (
        queried(wanted(), BASE),
        TORCH,
        f"gb10_container_image: {BASE} has vLLM 0.41.0. ",
        "Expected: vLLM 0.32.0, the release of gb10_runtime_lock",
    ),
}


@pytest.mark.parametrize(("nodes", "lock", "begin", "expected"), REFUSED.values(), ids=REFUSED)
def test_the_problems_of_a_build(nodes: list[Node], lock: str, begin: str, expected: str) -> None:
    (problem,) = mistakes(nodes, lock)
    assert str(problem).startswith(begin + expected)
