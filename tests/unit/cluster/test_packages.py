"""The Debian packages in the cluster's plan: which node lacks which, warnings, and names that are no packages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import cluster_nodes
import pytest
from cluster_nodes import BUILD, LOCK, READ, Node, mistakes, planned
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import packages, report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import Boot, Kernel, Level, State

ALL = ["g++", "python3-dev", "ccache", "python3-venv", "make"]
IMAGE = {"gb10_container_image": f"vllm/vllm-openai@sha256:{'0' * 64}", "gb10_runtime": "container"}
HOLDER = {"pid": 7, "process": "unattended-upgr", "unit": "apt-daily-upgrade.service"}
#: Few packages of each role.
FEW = {
    "vllm_runtime_packages": ["g++", "python3-dev"],
    "vllm_build_packages": ["ccache"],
    "nccl_sm121_build_packages": ["make"],
}
REBOOT = "a reboot is pending for linux-base. Fix: run playbooks/stop.yml, then reboot the node"
LOCKED = (
    "apt is locked by unattended-upgr (PID 7, apt-daily-upgrade.service); the run waits for it up to 900 s, before it "
    "changes anything"
)


def pair(
    lacking: list[str], build: dict[str, Any] = BUILD, debian: dict[str, Any] | None = None, **given: Any
) -> list[Node]:
    """Return two nodes that lack packages. ``debian``: more of apt's state on the second one."""
    nodes = cluster_nodes.pair(**FEW | given)
    for node, more in zip(nodes, ({}, debian or {}), strict=True):
        state = {"lacking": lacking, "holder": {}, "stale": True, "reboot": {"required": False, "packages": []}}
        node["observed"]["debian"] = {**state, **more}
        node["build"] = build
    return nodes


@pytest.mark.parametrize(
    ("nodes", "head", "worker"),
    [
        (pair([]), {}, {}),
        (pair(["g++", "make"]), {"vllm_runtime": ["g++"]}, {"vllm_runtime": ["g++"]}),
        (pair(ALL), {"vllm_runtime": ["g++", "python3-dev"]}, {"vllm_runtime": ["g++", "python3-dev"]}),
        (pair(["make"], nccl_sm121_build_enabled="true"), {"nccl_sm121_build": ["make"]}, {}),
        (pair(["ccache"], {**BUILD, "enabled": True, "commit": "0" * 40}), {"vllm_build": ["ccache"]}, {}),
        # The image has the runtime. Only the head downloads, and only from the Hub.
        (pair(ALL, **IMAGE), {}, {}),
        (pair(ALL, **IMAGE, gb10_model="gpt-oss-20b"), {"model_store": ["python3-venv"]}, {}),
        # An earlier release did not read the packages.
        (cluster_nodes.pair(), {}, {}),
    ],
)
def test_the_packages_that_each_role_lacks(nodes: list[Node], head: dict[str, Any], worker: dict[str, Any]) -> None:
    plan = planned(nodes)
    assert [node["packages"] for node in plan["nodes"]] == [head, worker]
    shown = [line for line in report.lines(typed(plan), 1) if "Debian" in line]
    assert shown == [f"  Debian packages to install: {', '.join(*each.values())}" for each in (head, worker) if each]


def test_an_option_of_apt_is_no_package() -> None:
    paths = [problem.path for problem in mistakes(pair([], vllm_runtime_packages=["g++", "-oDebug=1"]))]
    assert paths == [f"nodes[{index}].vllm_runtime_packages" for index in (0, 1)]


def test_the_system_of_each_node_is_shown_once() -> None:
    nodes = pair([])
    assert planned(nodes)["system"] == [], "facts of an earlier release"
    state = State("6.17", Level("7.5.0"), kernels=(Kernel("6.18", ("nvidia",)), Kernel("6.17")), boot=Boot((), "6.18"))
    for node in nodes:
        node["observed"]["updates"] = asdict(state)
    same = "DGX OS 7.5.0; kernel 6.17, next boot 6.18, which lacks nvidia"
    plan = planned(nodes)
    assert plan["system"] == [f"spark1, spark2: {same}"]
    shown = report.lines(typed(plan), 1)
    assert shown[shown.index("system:") + 1] == f"  spark1, spark2: {same}"
    lacks = "the kernel of the next boot, 6.18, lacks nvidia. Fix: install its packages of modules (docs/updates.md)"
    assert [line for line in cluster.warnings(parse(nodes, LOCK), None) if "lacks" in line] == [
        f"spark{number}: {lacks}" for number in (1, 2)
    ]
    nodes[1]["observed"]["updates"] = {"reason": "/boot/grub/grub.cfg: Permission denied"}
    assert planned(nodes)["system"][1] == "spark2: unknown: /boot/grub/grub.cfg: Permission denied"
    nodes[1]["observed"]["updates"] = {**asdict(state), "later": 1}
    assert planned(nodes)["system"][1].startswith("spark2: unknown: recorded by another release: updates.later")


def warned(nodes: list[Node], clock: Any = READ, read: float = READ) -> list[Node]:
    """Return the nodes with the clock of the second one."""
    nodes[1]["observed"]["clock"], nodes[1]["read"] = clock, read
    return nodes


@pytest.mark.parametrize(
    ("nodes", "begin"),
    [
        (pair([]), ""),
        (pair(["g++"], debian={"holder": HOLDER}), LOCKED),
        (pair([], debian={"holder": HOLDER}), ""),
        (pair([], debian={"reboot": {"required": True, "packages": ["linux-base"]}}), REBOOT),
        (warned(pair([]), READ - 86400), "its clock is 24.0 hours behind this machine's, so"),
        (warned(pair([]), READ + 7200), "its clock is 2.0 hours ahead of this machine's, so"),
        (warned(pair([]), READ - 599), ""),
        (warned(pair([]), None), ""),
        (warned(pair([]), "tomorrow"), ""),
        # Recorded facts.
        (warned(pair([]), READ - 86400, 0), ""),
    ],
)
def test_the_warnings_of_a_node(nodes: list[Node], begin: str) -> None:
    inputs = parse(nodes, LOCK)
    found = cluster.warnings(inputs, cluster.plan(inputs, {})[0])
    assert [line[: len(f"spark2: {begin}")] for line in found if line.startswith("spark")] == [
        f"spark2: {begin}"
    ] * bool(begin)
    # A pending reboot is a warning without a plan too.
    assert bool(packages.warnings(inputs.nodes, {})) is (begin == REBOOT)
