"""Tests of what the plan knows about a container image: its NCCL, and the digest that a tag is pinned to."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_nodes import Node, cluster_plan, mistakes, spark
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

IMAGE = "vllm/vllm-openai@sha256:" + "1" * 64
#: A stack whose lock and wheel have NCCL 2.30.7, as an inventory has it that only names an image.
LOCK = "\n".join(f"{pin} --hash=sha256:{'0' * 64}" for pin in ("vllm==0.33.0", "nvidia-nccl-cu13==2.30.7")) + "\n"


def pair(image: str = IMAGE, **settings: Any) -> list[Node]:
    """Return two nodes that run an image, whose environment of earlier still has a good NCCL."""
    given = {
        "gb10_runtime": "container",
        "gb10_container_image": image,
        "gb10_distributed_executor_backend": "mp",
        **settings,
    }
    nodes = [spark(number, group, **given) for number, group in ((1, "head"), (2, "worker"))]
    for node in nodes:
        node["observed"]["nccl"] = {"version": "2.30.7", "gcc": ["13.3.0"], "machine": "aarch64", "runs": ["12.1"]}
    return nodes


def queried(nodes: list[Node], nccl: str, image: str = IMAGE) -> list[Node]:
    """Record the head's query of an image."""
    names = ("gpu-memory-utilization", "kv-cache-memory-bytes", "max-model-len", "max-num-seqs", "moe-backend")
    options = [
        {"name": f"--{name}", "kind": "value", "aliases": [], "choices": [], "fold": "", "open": False}
        for name in names
    ]
    found = {
        "image": image,
        "image_id": "2" * 64,
        "version": "0.18.1",
        "ray": "",
        "nccl": nccl,
        "options": options,
        "variables": [],
    }
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
    assert (
        planned(queried(pair(), "2.29.7", "sha256:" + "3" * 64))["nccl"]["why"][-1]
        == "the NCCL release of the runtime is unknown"
    )


def test_an_image_that_was_queried_without_its_nccl_is_queried_again() -> None:
    nodes = queried(pair(), "2.29.7")
    del nodes[0]["observed"]["image_options"]["nccl"]
    assert planned(nodes)["runtime"]["options_of"] == ""


@pytest.mark.parametrize(("nccl", "found"), [("2.27.5", True), ("2.29.7", False)])
def test_the_hang_on_arm_is_found_in_an_image(nccl: str, found: bool) -> None:
    nodes = queried(pair(), nccl)
    for node in nodes:
        node["settings"]["nccl_sm121_build_enabled"] = "false"
    assert fired(planned(nodes), "nccl-arm-hang") is found


LATEST, PINNED = "vllm/vllm-openai:latest", "vllm/vllm-openai:latest@sha256:" + "4" * 64
PIN = {"image_id": "5" * 64, "digest": "sha256:" + "4" * 64}


def pinned(nodes: list[Node], tag: str = LATEST, **changes: str) -> list[Node]:
    """Record the head's pin of a tag."""
    nodes[0]["observed"]["image_pins"] = {tag: {**PIN, **changes}}
    return nodes


def shown(plan: dict[str, Any]) -> list[str]:
    return [line for line in report.lines(typed(plan), 1) if "containers of" in line or "pin" in line.split("info")[0]]


@pytest.mark.parametrize("tag", [LATEST, "vllm/vllm-openai", "vllm/vllm-openai:v0.30.0"])
def test_a_tag_is_accepted_and_pinned_later(tag: str) -> None:
    plan = planned(pair(tag))
    assert (plan["runtime"]["image"], plan["runtime"]["tag"], plan["serve"]["warnings"]) == (tag, tag, [])
    assert shown(plan) == [f"in containers of {tag}, run by docker", f"{tag} is a tag: the first pull pins its digest"]


def test_the_plan_uses_the_image_that_the_first_pull_got() -> None:
    plan = planned(queried(pinned(pair(LATEST)), "2.29.7", PINNED))
    runtime = plan["runtime"]
    assert (runtime["image"], runtime["base"], runtime["name"], runtime["tag"]) == (PINNED, PINNED, PINNED, LATEST)
    assert (runtime["options_of"], plan["stack"]["vllm"], fired(plan, "image-not-pinned")) == (
        "2" * 64,
        "0.18.1",
        False,
    )
    assert shown(plan) == [f"in containers of {PINNED}, run by docker", f"{LATEST} is pinned to {PIN['digest']}"]


def test_an_image_without_a_registry_is_pinned_by_its_id() -> None:
    plan = planned(pinned(pair("own:1"), "own:1", digest=""))
    assert (plan["runtime"]["image"], plan["runtime"]["tag"]) == (f"sha256:{PIN['image_id']}", "own:1")
    assert shown(plan)[1] == f"own:1 is pinned to sha256:{PIN['image_id']}"


def test_a_pin_of_another_tag_or_of_a_worker_does_not_count() -> None:
    nodes = pair(LATEST)
    nodes[1]["observed"]["image_pins"] = {LATEST: PIN}
    assert planned(pinned(nodes, "vllm/vllm-openai:nightly"))["runtime"]["image"] == LATEST
    assert planned(pinned(pair(IMAGE)))["runtime"]["tag"] == ""


def test_layers_are_built_on_the_pinned_image() -> None:
    given = {"gb10_image_layers": [{"path": "own"}]}
    layer = {"name": "own", "folder": "/srv/own", "digest": "d", "packages": [], "network": False, "problem": ""}
    plans = [
        cluster_plan(nodes, LOCK, layers=[layer])[0] for nodes in (pair(LATEST, **given), pinned(pair(LATEST, **given)))
    ]
    assert [plan["runtime"]["builds"][0]["base"] for plan in plans] == [LATEST, PINNED]
    assert plans[0]["runtime"]["image"] != plans[1]["runtime"]["image"], "an update builds the layers again"
    assert shown(plans[1])[1] == f"{LATEST} is pinned to {PIN['digest']}"


@pytest.mark.parametrize("digest", ["", PIN["digest"]])
def test_the_stacks_own_tag_stays_the_stacks_image(digest: str) -> None:
    nodes = [
        spark(number, group, gb10_stack="ngc-26.04", gb10_runtime_lock="")
        for number, group in ((1, "head"), (2, "worker"))
    ]
    tag = stacks.STACKS["ngc-26.04"].image
    (problem,) = mistakes(pinned(nodes, tag, digest=digest), "")
    assert problem.path == "image" and problem.fix.startswith("set gb10_distributed_executor_backend: mp"), (
        "it still has no Ray"
    )
    for node in nodes:
        node["settings"]["gb10_distributed_executor_backend"] = "mp"
    plan, problems = cluster_plan(pinned(nodes, tag, digest=digest), "")
    assert (problems, plan["runtime"]["tag"], launch_argv.keeps_entry_point(typed(plan))) == ([], tag, True)
    assert plan["stack"]["vllm"] == "0.19.0" and not any("is unknown" in line for line in plan["serve"]["why"])
