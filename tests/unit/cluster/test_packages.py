"""The Debian packages in the cluster's plan: which node lacks which, warnings, and names that are no packages."""

from __future__ import annotations

from typing import Any

import cluster_nodes
import pytest
from cluster_nodes import BUILD, LOCK, READ, Node, mistakes, planned
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import packages, report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse

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
