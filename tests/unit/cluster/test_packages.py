"""The Debian packages in the cluster's plan: which node lacks which, warnings, and names that are no packages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cluster_nodes import BUILD, LOCK, READ, Node, cluster_plan, mistakes, spark
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import packages, report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse

ALL = ["g++", "python3-dev", "ccache", "python3-venv", "make"]
IMAGE = f"vllm/vllm-openai@sha256:{'0' * 64}"
HOLDER = {"pid": 7, "process": "unattended-upgr", "unit": "apt-daily-upgrade.service"}


#: Few packages of each role.
FEW = {
    "vllm_runtime_packages": ["g++", "python3-dev"],
    "vllm_build_packages": ["ccache"],
    "nccl_sm121_build_packages": ["make"],
}


def pair(lacking: list[str], changes: dict[str, Any] | None = None, **given: Any) -> list[Node]:
    settings = {**FEW, **given}
    nodes = [spark(1, "head", **settings), spark(2, "worker", **settings)]
    for node in nodes:
        node.update(changes or {})
        node["observed"]["debian"] = {
            "lacking": lacking,
            "holder": {},
            "stale": True,
            "reboot": {"required": False, "packages": []},
        }
    return nodes


@pytest.mark.parametrize(
    ("lacking", "changes", "settings", "head", "worker"),
    [
        ([], {}, {}, {}, {}),
        (["g++", "make"], {}, {}, {"vllm_runtime": ["g++"]}, {"vllm_runtime": ["g++"]}),
        (ALL, {}, {}, {"vllm_runtime": ["g++", "python3-dev"]}, {"vllm_runtime": ["g++", "python3-dev"]}),
        (["make"], {}, {"nccl_sm121_build_enabled": "true"}, {"nccl_sm121_build": ["make"]}, {}),
        (["ccache"], {"build": {**BUILD, "enabled": True, "commit": "0" * 40}}, {}, {"vllm_build": ["ccache"]}, {}),
        # The image has the runtime. Only the head downloads, and only from the Hub.
        (ALL, {}, {"gb10_container_image": IMAGE, "gb10_runtime": "container"}, {}, {}),
        (
            ALL,
            {},
            {"gb10_container_image": IMAGE, "gb10_runtime": "container", "gb10_model": "gpt-oss-20b"},
            {"model_store": ["python3-venv"]},
            {},
        ),
    ],
)
def test_the_packages_that_each_role_lacks(
    lacking: list[str], changes: dict[str, Any], settings: dict[str, Any], head: dict[str, Any], worker: dict[str, Any]
) -> None:
    plan, problems = cluster_plan(pair(lacking, changes, **settings))
    assert [str(problem) for problem in problems] == []
    assert [node["packages"] for node in plan["nodes"]] == [head, worker]


def test_facts_of_an_earlier_release_lack_nothing() -> None:
    nodes = pair([])
    for node in nodes:
        del node["observed"]["debian"]
    assert cluster_plan(nodes)[0]["nodes"][0]["packages"] == {}


def test_the_plan_shows_the_packages_to_install() -> None:
    plan, _problems = cluster_plan(pair(["g++", "python3-dev"]))
    assert "  Debian packages to install: g++, python3-dev" in report.lines(typed(plan), 1)
    assert not any("Debian" in line for line in report.lines(typed(cluster_plan(pair([]))[0]), 1))


def test_an_option_of_apt_is_no_package() -> None:
    nodes = pair([], vllm_runtime_packages=["g++", "-oDebug=1"])
    assert [problem.path for problem in mistakes(nodes)] == [
        "nodes[0].vllm_runtime_packages",
        "nodes[1].vllm_runtime_packages",
    ]


def warnings(nodes: list[Node]) -> list[str]:
    inputs = parse(nodes, LOCK)
    return [
        line for line in cluster.warnings(inputs, cluster.plan(inputs, {})[0]) if re.search("apt|reboot|clock", line)
    ]


def test_a_lock_is_a_warning_only_if_the_run_will_wait_for_it() -> None:
    nodes = pair(["g++"])
    nodes[1]["observed"]["debian"]["holder"] = HOLDER
    assert warnings(nodes) == [
        "spark2: apt is locked by unattended-upgr (PID 7, apt-daily-upgrade.service); "
        "the run waits for it up to 900 s, before it changes anything"
    ]
    nodes[1]["observed"]["debian"]["lacking"] = []
    assert warnings(nodes) == []


@pytest.mark.parametrize(
    ("seconds", "clock"),
    [
        (-86400, "24.0 hours behind this machine's"),
        (7200, "2.0 hours ahead of this machine's"),
        (-599, ""),
        (None, ""),
        ("tomorrow", ""),
    ],
)
def test_a_clock_that_is_far_off_is_a_warning(seconds: Any, clock: str) -> None:
    nodes = pair([])
    nodes[1]["observed"]["clock"] = READ + seconds if isinstance(seconds, int) else seconds
    found = warnings(nodes)
    assert [sentence.partition(", so")[0] for sentence in found] == ([f"spark2: its clock is {clock}"] if clock else [])
    nodes[1]["read"] = 0
    assert warnings(nodes) == [], "recorded facts"


def test_a_pending_reboot_is_a_warning_with_and_without_a_plan() -> None:
    nodes = pair([])
    nodes[0]["observed"]["debian"]["reboot"] = {"required": True, "packages": ["linux-base"]}
    expected = ["spark1: a reboot is pending for linux-base. Fix: run playbooks/stop.yml, then reboot the node"]
    assert warnings(nodes) == expected
    assert packages.warnings(parse(nodes, LOCK).nodes, {}) == expected
