"""The protection of hosts in the plan of a cluster and in its text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from cluster_nodes import cluster_plan, mistakes, planned, spark
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import HostState

FOUND = HostState(values={"vm.swappiness": "60"}, device=False)


def pair(**settings: Any) -> list[dict[str, Any]]:
    """Return two nodes; the settings are the worker's only."""
    nodes = [spark(1, "head"), spark(2, "worker", **settings)]
    for node in nodes:
        node["observed"]["host"] = asdict(FOUND)
    return nodes


def shown(nodes: list[dict[str, Any]]) -> list[str]:
    plan, problems = cluster_plan(nodes)
    assert problems == []
    return [line for line in report.lines(typed(plan), 1) if "host protection" in line]


def test_each_node_has_its_own_protection() -> None:
    nodes = pair(host_guard_gpu_clock=2100)
    assert [node["host_guard"]["due"] for node in planned(nodes)["nodes"]] == [False, True]
    assert shown(nodes) == ["  host protection: GPU clock at most 2100 MHz"]
    assert shown(pair()) == []


def test_problems_name_the_node_and_its_variable() -> None:
    found = mistakes(pair(host_guard_gpu_clock=5000, host_guard_hardware_watchdog=60))
    assert [problem.path for problem in found] == [
        "nodes[1].host_guard_gpu_clock",
        "nodes[1].host_guard_hardware_watchdog",
    ]


@pytest.mark.parametrize("host", [[], {"values": {"vm.swappiness": 60}}, {"device": "yes"}])
def test_facts_of_another_form_count_as_not_read(host: Any) -> None:
    nodes = pair(host_guard_hardware_watchdog=60)
    nodes[1]["observed"]["host"] = host
    unread = pair(host_guard_hardware_watchdog=60)
    del unread[1]["observed"]["host"]
    assert planned(nodes) == planned(unread)


def test_facts_of_a_newer_release_are_read() -> None:
    nodes = pair(host_guard_hardware_watchdog=60)
    nodes[1]["observed"]["host"]["added"] = 1
    assert [problem.path for problem in mistakes(nodes)] == ["nodes[1].host_guard_hardware_watchdog"]
