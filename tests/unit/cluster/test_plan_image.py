"""Tests of what the plan knows about a container image: its NCCL, and the digest that a tag is pinned to."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_nodes import Node, cluster_plan, mistakes, spark

IMAGE = "vllm/vllm-openai@sha256:" + "1" * 64
#: A stack whose lock and wheel have NCCL 2.30.7, as an inventory has it that only names an image.
LOCK = "\n".join(f"{pin} --hash=sha256:{'0' * 64}" for pin in ("vllm==0.33.0", "nvidia-nccl-cu13==2.30.7")) + "\n"


def pair(image: str = IMAGE, **settings: Any) -> list[Node]:
    """Return two nodes that run an image, whose environment of earlier still has a good NCCL."""
    given = {"gb10_runtime": "container", "gb10_container_image": image, "gb10_distributed_executor_backend": "mp", **settings}
    nodes = [spark(number, group, **given) for number, group in ((1, "head"), (2, "worker"))]
    for node in nodes:
        node["observed"]["nccl"] = {"version": "2.30.7", "gcc": ["13.3.0"], "machine": "aarch64", "runs": ["12.1"]}
    return nodes


def queried(nodes: list[Node], nccl: str, image: str = IMAGE) -> list[Node]:
    """Record the head's query of an image."""
    names = ("gpu-memory-utilization", "kv-cache-memory-bytes", "max-model-len", "max-num-seqs", "moe-backend")
    options = [{"name": f"--{name}", "kind": "value", "aliases": [], "choices": [], "fold": "", "open": False} for name in names]
    found = {"image": image, "image_id": "2" * 64, "version": "0.18.1", "ray": "", "nccl": nccl, "options": options, "variables": []}
    nodes[0]["observed"]["image_options"] = found
    return nodes


def planned(nodes: list[Node]) -> dict[str, Any]:
    plan, problems = cluster_plan(nodes, LOCK)
    assert problems == []
    return plan


def fired(plan: dict[str, Any], rule: str) -> bool:
    return any(f" {rule}, " in line for line in plan["serve"]["findings"])


def test_the_nccl_of_an_image_that_was_not_read_is_unknown() -> None:
    plan = planned(pair())
    assert (plan["nccl"]["build"], plan["nccl"]["final"]) == (True, False)
    assert plan["nccl"]["why"][-1] == "the NCCL release of the runtime is unknown"
    assert "nccl_sm121_build" not in plan["nodes"][0]["packages"], "the image may make the build needless"


@pytest.mark.parametrize(
    ("nccl", "build", "why"),
    [
        ("2.27.5", True, "NCCL 2.27.5 is older than 2.29.3"),
        ("2.29.7", False, "NCCL 2.29.7 is new enough by its release"),
        ("", True, "the NCCL release of the runtime is unknown"),
    ],
)
def test_the_nccl_in_the_image_decides(nccl: str, build: bool, why: str) -> None:
    plan = planned(queried(pair(), nccl))
    assert (plan["nccl"]["build"], plan["nccl"]["why"][-1], plan["nccl"]["final"]) == (build, why, bool(nccl))
    assert plan["serve"]["nccl"] == ("2.30.7" if build else nccl)


def test_the_nccl_of_another_image_does_not_count() -> None:
    assert planned(queried(pair(), "2.29.7", "sha256:" + "3" * 64))["nccl"]["why"][-1] == "the NCCL release of the runtime is unknown"


def test_an_image_that_was_queried_without_its_nccl_is_queried_again() -> None:
    nodes = queried(pair(), "2.29.7")
    del nodes[0]["observed"]["image_options"]["nccl"]
    assert planned(nodes)["runtime"]["options_of"] == ""


@pytest.mark.parametrize(("nccl", "found"), [("2.27.5", True), ("2.29.7", False)])
def test_the_hang_on_arm_is_found_in_an_image(nccl: str, found: bool) -> None:
    nodes = queried(pair(), nccl)
    for node in nodes:
        node["nccl_wanted"] = "false"
    assert fired(planned(nodes), "nccl-arm-hang") is found
