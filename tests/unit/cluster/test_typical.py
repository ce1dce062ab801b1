"""Plans from the typical facts of a Spark and a Thor, without hardware."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster_nodes import LOCK, Node, cluster_plan, pair, spark
from repository import ROOT
from run_playbook import run
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import TYPICAL
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.typical import observed

PORT_0, PORT_1 = ["enP2p1s0f0np0", "enp1s0f0np0"], ["enP2p1s0f1np1", "enp1s0f1np1"]


def assumed(*nodes: Node) -> list[Node]:
    """Return nodes that were not read."""
    return [{**node, "typical": True, "observed": {}} for node in nodes]


def planned(*nodes: Node) -> dict[str, Any]:
    plan, problems = cluster_plan(assumed(*nodes), LOCK)
    assert problems == []
    return plan


@pytest.mark.parametrize(
    ("settings", "cabled"),
    [
        ({}, PORT_1),
        ({"gb10_fabric_ports": ["0"]}, PORT_0),
        ({"gb10_fabric_interface": "enp1s0f0np0"}, PORT_0),
        ({"gb10_fabric_topology": "ring"}, sorted(PORT_0 + PORT_1)),
        ({"gb10_fabric_ports": "both"}, PORT_1),
    ],
)
def test_the_cables_are_those_of_the_inventory(settings: dict[str, Any], cabled: list[str]) -> None:
    facts = observed(settings, "192.168.1.11")
    assert facts["gpu"]["memory_bytes"] == 127_600_748 * 1024, "as a real Spark"
    assert sorted(name for name, found in facts["interfaces"].items() if found["carrier"]) == sorted(
        ["lo", "enP7s7", *cabled]
    )
    assert sorted(device["interface"] for device in facts["rdma"].values() if device["state"] == "ACTIVE") == cabled


def test_a_plan_with_typical_facts_begins_and_ends_with_the_label() -> None:
    """A host name has no address before the node is there."""
    head, worker = pair(gb10_model="openai/gpt-oss-120b")
    lines = cluster_report.lines(typed(planned({**head, "address": "spark-1234.local"}, worker)), 1)
    assert (lines[0], lines[-2:]) == (
        f"{TYPICAL}:",
        [
            f"gpt-oss-120b on 2 nodes: fits, context 131072, at most 108.6 tokens/s ({TYPICAL})",
            "API at http://spark-1234.local:8000/v1, with a key, no TLS",
        ],
    )


def test_mistakes_in_the_inventory_are_found_without_hardware() -> None:
    _plan, problems = cluster_plan(assumed(spark(1, "head", gb10_model="gpt-oss-12b", gb10_stack="curent")), LOCK)
    assert {"gb10_model", "gb10_stack"} <= {problem.path for problem in problems}


@pytest.mark.parametrize(
    ("name", "found"),
    [("openai/gpt-oss-120", True), ("owner/own", False), ("openai/gpt-oss-120b", False), ("/srv/own", False)],
)
def test_a_name_like_one_of_the_catalog_is_a_warning(name: str, found: bool) -> None:
    warning = "openai/gpt-oss-120 was not read and is not in the catalog; perhaps use openai/gpt-oss-120b"
    lines = planned(spark(1, "head", gb10_model=name))["serve"]["warnings"]
    assert any(line.startswith(warning) for line in lines) is found


@pytest.mark.slow
def test_no_node_is_contacted_and_the_end_names_the_warnings_at_the_top() -> None:
    """An address of a documentation network would be an unreachable node."""
    given = {
        "gb10_plan_offline": "typical",
        "ansible_host": "192.0.2.1{{ inventory_hostname[-1] }}",
        "gb10_plan_save_facts": True,
    }
    given["gb10_model"] = "openai/gpt-oss-120"
    done = run("playbooks/plan.yml", ["-i", str(ROOT / "inventories/two-spark"), "--extra-vars", json.dumps(given)])
    lines = done.assert_unchanged().shown("Show the plan")
    assert lines[0] == f"{TYPICAL}:" and lines[-2].startswith("API at http://192.0.2.11:8000/v1")
    warning = "openai/gpt-oss-120 was not read and is not in the catalog"
    assert f"  warning: {warning}" in done.output.partition(f"{TYPICAL}:")[0]
    assert "  warning: 2 findings at the top of this output\n" in done.output
