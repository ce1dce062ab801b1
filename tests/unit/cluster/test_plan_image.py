"""Tests of the plan's facts about a container image: its NCCL, and the digest that a tag is pinned to."""

from __future__ import annotations

from typing import Any

import cluster_nodes
import pytest
from cluster_nodes import Node, lock_of, mistakes, parts, planned
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

IMAGE = "vllm/vllm-openai@sha256:" + "1" * 64
LATEST, PINNED = "vllm/vllm-openai:latest", "vllm/vllm-openai:latest@sha256:" + "4" * 64
PIN = {"image_id": "5" * 64, "digest": "sha256:" + "4" * 64}
#: A stack whose lock and wheel have NCCL 2.30.7, as an inventory has it that only names an image.
LOCK = lock_of("vllm==0.33.0", "nvidia-nccl-cu13==2.30.7")
MP = {"gb10_distributed_executor_backend": "mp"}
UNKNOWN = "the NCCL release of the runtime is unknown"
HANGS = {"nccl_sm121_build_enabled": "false"}
LAYER = {"name": "own", "folder": "/srv/own", "digest": "d", "packages": [], "network": False, "problem": ""}


def pair(image: str = IMAGE, **settings: Any) -> list[Node]:
    """Return two nodes that run an image, whose environment of earlier still has a good NCCL."""
    nodes = cluster_nodes.pair(gb10_runtime="container", gb10_container_image=image, **MP, **settings)
    for node in nodes:
        node["observed"]["nccl"] = {"version": "2.30.7", "gcc": ["13.3.0"], "machine": "aarch64", "runs": ["12.1"]}
    return nodes


#: The warnings of a plan whose image has a digest: its model is not known.
UNSIZED = planned(pair(), LOCK)["serve"]["warnings"]


def queried(nodes: list[Node], nccl: str, image: str = IMAGE) -> list[Node]:
    return cluster_nodes.queried(nodes, image, version="0.18.1", nccl=nccl)


def pinned(nodes: list[Node], tag: str = LATEST, index: int = 0, **changes: str) -> list[Node]:
    """Record a node's pin of a tag."""
    nodes[index]["observed"]["image_pins"] = {tag: {**PIN, **changes}}
    return nodes


def without_nccl(nodes: list[Node]) -> list[Node]:
    """Return the nodes with a query of an earlier release."""
    del nodes[0]["observed"]["image_options"]["nccl"]
    return nodes


#: Nodes, parts of their plan, and its lines about the image.
PLANS: dict[str, tuple[list[Node], dict[str, Any], list[str]]] = {
    "an image that was not read": (
        pair(),
        {"nccl.build": True, "nccl.final": False, "nccl.why.1": UNKNOWN, "nodes.0.packages": {}},
        [],
    ),
    **{
        f"NCCL {nccl!r} in the image": (
            queried(pair(), nccl),
            {
                "nccl.build": build,
                "nccl.final": nccl != "",
                "nccl.why.1": why,
                "serve.nccl": "2.30.7" if build else nccl,
            },
            [],
        )
        for nccl, build, why in (
            ("2.27.5", True, "NCCL 2.27.5 is older than 2.29.3"),
            ("2.29.7", False, "NCCL 2.29.7 has the fix of 2.29.3 for ARM by its release"),
            ("", True, UNKNOWN),
        )
    },
    "NCCL in another image": (queried(pair(), "2.29.7", "sha256:" + "3" * 64), {"nccl.why.1": UNKNOWN}, []),
    "a query of an earlier release": (without_nccl(queried(pair(), "2.29.7")), {"runtime.options_of": ""}, []),
    **{
        tag: (
            pair(tag),
            {"runtime.image": tag, "runtime.tag": tag, "serve.warnings": UNSIZED},
            [f"in containers of {tag}, run by docker", f"{tag} is a tag: the first pull pins its digest"],
        )
        for tag in (LATEST, "vllm/vllm-openai", "vllm/vllm-openai:v0.30.0")
    },
    "the image that the first pull got": (
        queried(pinned(pair(LATEST)), "2.29.7", PINNED),
        {
            **dict.fromkeys(("runtime.image", "runtime.base", "runtime.name"), PINNED),
            "runtime.tag": LATEST,
            "runtime.options_of": "2" * 64,
            "stack.vllm": "0.18.1",
        },
        [f"in containers of {PINNED}, run by docker", f"{LATEST} is pinned to {PIN['digest']}"],
    ),
    "an image without a registry": (
        pinned(pair("own:1"), "own:1", digest=""),
        {"runtime.image": f"sha256:{PIN['image_id']}", "runtime.tag": "own:1"},
        [f"in containers of sha256:{PIN['image_id']}, run by docker", f"own:1 is pinned to sha256:{PIN['image_id']}"],
    ),
    "pins of another tag and of a worker": (
        pinned(pinned(pair(LATEST), index=1), "vllm/vllm-openai:nightly"),
        {"runtime.image": LATEST},
        [],
    ),
    "a digest": (pinned(pair()), {"runtime.tag": ""}, []),
}


def findings(plan: dict[str, Any]) -> set[str]:
    return {line.split()[1].rstrip(",") for line in plan["serve"]["findings"]}


def shown(plan: dict[str, Any]) -> list[str]:
    return [line for line in report.lines(typed(plan), 1) if "containers of" in line or "pin" in line.split("info")[0]]


@pytest.mark.parametrize(("nodes", "expected", "lines"), PLANS.values(), ids=PLANS)
def test_parts_of_a_plan_with_an_image(nodes: list[Node], expected: dict[str, Any], lines: list[str]) -> None:
    plan = planned(nodes, LOCK)
    assert parts(plan, expected) == expected
    assert not lines or shown(plan) == lines
    assert ("image-not-pinned" in findings(plan)) is (plan["runtime"]["base"] in (LATEST, "vllm/vllm-openai"))


UNREAD = "vLLM of the image, which is read when it is on the head (stack current), NCCL 2.30.7"
NGC = {"gb10_stack": "ngc-26.04", "gb10_runtime_lock": "", **MP}


@pytest.mark.parametrize(
    ("nodes", "lock", "shown"),
    [
        (pair(LATEST), LOCK, UNREAD),
        (pinned(pair(LATEST)), LOCK, UNREAD),
        (queried(pinned(pair(LATEST)), "2.29.7", PINNED), LOCK, "vLLM 0.18.1 (stack current), NCCL 2.29.7"),
        (cluster_nodes.pair(**NGC), "", "vLLM 0.19.0 (stack ngc-26.04), NCCL 2.30.7"),
        (cluster_nodes.pair(**MP), LOCK, "vLLM 0.33.0 (stack current), NCCL 2.30.7"),
    ],
)
def test_the_release_of_another_image_is_shown_once_it_is_known(nodes: list[Node], lock: str, shown: str) -> None:
    assert shown in report.lines(typed(planned(nodes, lock)), 1)


@pytest.mark.parametrize(("nccl", "found"), [("2.27.5", True), ("2.29.7", False)])
def test_the_hang_on_arm_is_found_in_an_image(nccl: str, found: bool) -> None:
    assert ("nccl-arm-hang" in findings(planned(queried(pair(**HANGS), nccl), LOCK))) is found


def test_layers_are_built_on_the_pinned_image() -> None:
    tag, pin = (
        planned(nodes, LOCK, layers=[LAYER])
        for nodes in (
            pair(LATEST, gb10_image_layers=[{"path": "own"}]),
            pinned(pair(LATEST, gb10_image_layers=[{"path": "own"}])),
        )
    )
    assert [plan["runtime"]["builds"][0]["base"] for plan in (tag, pin)] == [LATEST, PINNED]
    assert tag["runtime"]["image"] != pin["runtime"]["image"], "an update builds the layers again"
    assert shown(pin)[1] == f"{LATEST} is pinned to {PIN['digest']}"


@pytest.mark.parametrize("digest", ["", PIN["digest"]])
def test_the_stacks_own_tag_stays_the_stacks_image(digest: str) -> None:
    tag, settings = stacks.STACKS["ngc-26.04"].image, {"gb10_stack": "ngc-26.04", "gb10_runtime_lock": ""}
    (problem,) = mistakes(pinned(cluster_nodes.pair(**settings), tag, digest=digest), "")
    assert problem.path == "image" and problem.fix.startswith("set gb10_distributed_executor_backend: mp"), "no Ray"
    plan = planned(pinned(cluster_nodes.pair(**settings, **MP), tag, digest=digest), "")
    assert (plan["runtime"]["tag"], plan["stack"]["vllm"], launch_argv.keeps_entry_point(typed(plan))) == (
        tag,
        "0.19.0",
        True,
    )
    assert not any("is unknown" in line for line in plan["serve"]["why"])
