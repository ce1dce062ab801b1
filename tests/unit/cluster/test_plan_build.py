"""Tests of a build of vLLM in the plan of containers: its image, the image's name before the build, and its
problems."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_nodes import LOCK, Node, cluster_plan, lock_of, mistakes, spark

BASE = "vllm/vllm-openai@sha256:" + "1" * 64
TORCH = LOCK + lock_of("torch==2.13.0+cpu")
COMMIT = "7" * 40
CONTAINER = {"gb10_runtime": "container", "gb10_container_image": BASE, "gb10_distributed_executor_backend": "mp"}


def pair(build: dict[str, Any], **settings: Any) -> list[Node]:
    """Return two nodes with containers that want a build of vLLM."""
    nodes = [spark(number, group, **{**CONTAINER, **settings}) for number, group in ((1, "head"), (2, "worker"))]
    for node in nodes:
        node["build"] = {**node["build"], "enabled": True, "commit": COMMIT, "version": "", **build}
    return nodes


def planned(nodes: list[Node], lock: str = TORCH, **more: Any) -> dict[str, Any]:
    plan, problems = cluster_plan(nodes, lock, **more)
    assert problems == []
    return plan


def has(
    node: Node, name: str, sha256: str = "5" * 64, wheel: str = "vllm-0.32.0+gb10.ab-cp312-cp312-linux_aarch64.whl"
) -> None:
    """Add a build to a node's store."""
    node["observed"]["vllm_build"] = {"builds": [{"name": name, "wheel": wheel, "sha256": sha256}], "published": None}


def built(nodes: list[Node], **more: str) -> list[Node]:
    """Add the planned build to the head's store."""
    has(nodes[0], planned(nodes)["build"]["wheels"][0]["name"], **more)
    return nodes


def queried(nodes: list[Node], image: str, version: str) -> list[Node]:
    """Record the head's query of an image."""
    names = ("gpu-memory-utilization", "kv-cache-memory-bytes", "max-model-len", "max-num-seqs", "moe-backend")
    options = [
        {"name": f"--{name}", "kind": "value", "aliases": [], "choices": [], "fold": "", "open": False}
        for name in names
    ]
    found = {
        "image": image,
        "image_id": "2" * 64,
        "version": version,
        "ray": "",
        "nccl": "",
        "options": options,
        "variables": [],
    }
    nodes[0]["observed"]["image_options"] = found
    return nodes


def test_the_ranks_run_the_image_with_the_wheel_of_the_head() -> None:
    plan = planned(built(pair({})))
    (item,), runtime = plan["build"]["wheels"], plan["runtime"]
    assert (plan["build"]["state"], item["nodes"], item["capabilities"]) == ("ready", ["spark1"], ["12.1"])
    (build,) = runtime["builds"]
    assert (build["base"], runtime["base"], runtime["image"], runtime["name"]) == (
        BASE,
        BASE,
        build["image"],
        build["image"],
    )
    assert (build["wheel"], build["sha256"]) == (f"/opt/gb10/build/wheels/{item['name']}/{item['wheel']}", "5" * 64)
    assert (runtime["lock"], item["torch"], plan["stack"]["vllm"]) == ("vllm.lock", "2.13.0", "0.32.0")
    assert [node["wheels"] for node in plan["nodes"]] == [[], []]


def test_the_wheel_is_below_the_users_layers() -> None:
    layer = {"name": "own", "folder": "/srv/own", "digest": "d", "packages": [], "network": False, "problem": ""}
    nodes = built(pair({}, gb10_image_layers=[{"path": "own"}]))
    runtime = planned(nodes, layers=[layer])["runtime"]
    wheel, own = runtime["builds"]
    assert (wheel["sha256"], own["folder"], own["base"], runtime["image"]) == (
        "5" * 64,
        "/srv/own",
        wheel["image"],
        own["image"],
    )


def test_a_missing_build_has_an_image_that_no_engine_has() -> None:
    several = (pair({}), pair({"commit": "8" * 40}), built(pair({})), built(pair({}), sha256="6" * 64))
    names = [planned(nodes)["runtime"]["image"] for nodes in several]
    assert len({*names, BASE}) == 5
    assert [planned(pair({}))["build"]["state"], planned(pair({}))["runtime"]["image"]] == ["missing", names[0]]
    nodes = pair({})
    has(nodes[1], planned(nodes)["build"]["wheels"][0]["name"])
    assert planned(nodes)["build"]["state"] == "missing", "the wheel of a worker does not count"


def test_a_wheel_without_a_plain_name_is_not_used() -> None:
    for name in ("../../vllm.whl", "vllm.whl\nRUN x", "vllm"):
        plan = planned(built(pair({}), wheel=name))
        assert (plan["build"]["state"], plan["build"]["wheels"][0]["wheel"]) == ("missing", "")


def test_auto_keeps_an_image_unless_the_source_is_another_one() -> None:
    plan = planned(pair({"enabled": "auto"}))
    assert (plan["build"]["state"], plan["runtime"]["image"]) == ("published", BASE)
    assert "the GPU code in an image is not read; vllm_build_enabled: true builds it" in plan["build"]["why"][0]
    plan = planned(built(pair({"enabled": "auto", "patches": [{"path": "a.patch", "sha256": "3" * 64}]})))
    assert (plan["build"]["state"], plan["build"]["why"]) == ("ready", ["1 patch changes the source"])
    assert planned(pair({"enabled": False}))["runtime"]["image"] == BASE


def test_a_query_of_the_image_does_not_change_the_build() -> None:
    before = planned(built(pair({})))
    after = planned(queried(built(pair({})), before["runtime"]["image"], "0.32.0+gb10.ab"))
    assert (after["build"], after["runtime"]["image"]) == (before["build"], before["runtime"]["image"])
    assert (before["runtime"]["options_of"], after["runtime"]["options_of"]) == ("", "2" * 64)
    assert planned(queried(pair({}), BASE, "0.32.0"))["build"]["state"] == "missing"


def test_an_image_of_another_release_is_refused() -> None:
    (problem,) = mistakes(queried(pair({}), BASE, "0.41.0+local"), TORCH)
    assert (problem.path, problem.found) == ("gb10_container_image", f"{BASE} has vLLM 0.41.0")
    assert problem.expected.startswith("vLLM 0.32.0, the release of gb10_runtime_lock")
    assert planned(queried(pair({"enabled": "auto"}), BASE, "0.41.0"))["build"]["state"] == "published"


REFUSED: dict[str, tuple[list[Node], str, str, str]] = {
    "no lock": (
        pair({}, gb10_stack="ngc-26.04", gb10_runtime_lock="", gb10_container_image=""),
        "",
        "vllm_build_enabled",
        "the runtime has no lock",
    ),
    "a lock without torch": (pair({}), LOCK, "gb10_runtime_lock", "it pins no torch"),
    "a lock without hashes": (
        pair({}),
        TORCH + "numpy==2.4.0\n",
        "gb10_runtime_lock",
        "vllm.lock has releases without hash (line 7: numpy==2.4.0)",
    ),
    "wheels for each GPU": (pair({"separate": True}), TORCH, "vllm_build_separate", "true"),
}


@pytest.mark.parametrize(("nodes", "lock", "path", "found"), REFUSED.values(), ids=REFUSED)
def test_problems(nodes: list[Node], lock: str, path: str, found: str) -> None:
    (problem,) = mistakes(nodes, lock)
    assert (problem.path, problem.found) == (path, found)


def test_an_environment_has_the_wheel_of_each_node() -> None:
    nodes = pair({}, gb10_runtime="native", gb10_container_image="")
    name = planned(nodes)["build"]["wheels"][0]["name"]
    has(nodes[0], name)
    assert planned(nodes)["build"]["state"] == "missing"
    has(nodes[1], name)
    plan = planned(nodes)
    assert (plan["build"]["state"], plan["runtime"]["builds"], plan["build"]["wheels"][0]["nodes"]) == (
        "ready",
        [],
        ["spark1", "spark2"],
    )
    assert [(wheel["sha256"], wheel["built"]) for node in plan["nodes"] for wheel in node["wheels"]] == [
        ("5" * 64, True)
    ] * 2
