"""Plans from the typical facts of a Spark and a Thor, without hardware."""

from __future__ import annotations

import json
from typing import Any

import pytest
import samples
from cluster_nodes import LOCK, Node, cluster_plan, spark
from repository import ROOT
from run_playbook import Run, run
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import TYPICAL
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.typical import observed

SAMPLES = ("single-spark", "two-spark", "three-spark-ring", "four-spark-switch", "spark-thor")


def assumed(node: Node) -> Node:
    """Return a node that was not read."""
    return {**node, "typical": True, "observed": {}}


def planned(*nodes: Node) -> dict[str, Any]:
    plan, problems = cluster_plan([assumed(node) for node in nodes], LOCK)
    assert problems == []
    return plan


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_sample_is_planned_without_its_nodes(sample: str) -> None:
    plan = planned(*samples.nodes_of(samples.inventory(sample), ()))
    assert plan["label"] == TYPICAL
    assert plan["serve"]["expected"]["context"] == 131072
    assert [node["capability"] for node in plan["nodes"]] == [
        "11.0" if node["name"].startswith("thor") else "12.1" for node in plan["nodes"]
    ]


def test_the_memory_is_that_of_a_real_spark() -> None:
    assert observed({}, "192.168.1.11")["gpu"]["memory_bytes"] == 127_600_748 * 1024


@pytest.mark.parametrize(
    ("settings", "cabled"),
    [
        ({}, ["enP2p1s0f1np1", "enp1s0f1np1"]),
        ({"gb10_fabric_ports": ["0"]}, ["enP2p1s0f0np0", "enp1s0f0np0"]),
        ({"gb10_fabric_interface": "enp1s0f0np0"}, ["enP2p1s0f0np0", "enp1s0f0np0"]),
        ({"gb10_fabric_topology": "ring"}, ["enP2p1s0f0np0", "enP2p1s0f1np1", "enp1s0f0np0", "enp1s0f1np1"]),
        ({"gb10_fabric_ports": "both"}, ["enP2p1s0f1np1", "enp1s0f1np1"]),
    ],
)
def test_the_cables_are_those_of_the_inventory(settings: dict[str, Any], cabled: list[str]) -> None:
    facts = observed(settings, "192.168.1.11")
    assert (
        sorted(
            name
            for name, found in facts["interfaces"].items()
            if found["carrier"] and name.startswith("en") and name != "enP7s7"
        )
        == cabled
    )
    assert sorted(device["interface"] for device in facts["rdma"].values() if device["state"] == "ACTIVE") == cabled


def test_a_host_name_has_no_address_before_the_node_is_there() -> None:
    head, worker = (
        spark(number, group, gb10_model="openai/gpt-oss-120b") for number, group in ((1, "head"), (2, "worker"))
    )
    plan = planned({**head, "address": "spark-1234.local"}, worker)
    assert plan["api"]["endpoint"] == "http://spark-1234.local:8000/v1"


def test_a_plan_with_typical_facts_begins_and_ends_with_the_label() -> None:
    lines = cluster_report.lines(
        typed(
            planned(
                *(
                    spark(number, "worker" if number > 1 else "head", gb10_model="openai/gpt-oss-120b")
                    for number in (1, 2)
                )
            )
        ),
        1,
    )
    assert lines[0] == f"{TYPICAL}:"
    assert lines[-2] == f"gpt-oss-120b on 2 nodes: fits, context 131072, at most 108.6 tokens/s ({TYPICAL})"
    assert lines[-1] == "API at http://192.168.1.11:8000/v1, with a key, no TLS"


def test_mistakes_in_the_inventory_are_found_without_hardware() -> None:
    _plan, problems = cluster_plan([assumed(spark(1, "head", gb10_model="gpt-oss-12b", gb10_stack="curent"))], LOCK)
    assert {"gb10_model", "gb10_stack"} <= {problem.path for problem in problems}


def test_a_name_like_one_of_the_catalog_is_a_warning() -> None:
    warning = "openai/gpt-oss-120 was not read and is not in the catalog; perhaps use openai/gpt-oss-120b"
    for name, found in (("openai/gpt-oss-120", 1), ("owner/own", 0), ("openai/gpt-oss-120b", 0), ("/srv/own", 0)):
        lines = planned(spark(1, "head", gb10_model=name))["serve"]["warnings"]
        assert len([line for line in lines if line.startswith(warning)]) == found


def play(playbook: str, **variables: object) -> Run:
    given = json.dumps({"gb10_plan_offline": "typical", **variables})
    return run(playbook, ["-i", str(ROOT / "inventories/two-spark"), "--extra-vars", given])


def test_no_node_is_contacted() -> None:
    """An address of a documentation network would be an unreachable node."""
    done = play("playbooks/plan.yml", ansible_host="192.0.2.11", gb10_plan_save_facts=True).assert_unchanged()
    lines = done.shown("Show the plan")
    assert lines[0] == f"{TYPICAL}:"
    assert any(line.startswith("fits: ") for line in lines)


def test_the_end_of_a_plan_names_the_warnings_at_its_top() -> None:
    output = play("playbooks/plan.yml", gb10_model="openai/gpt-oss-120").assert_unchanged().output
    warning, last = "openai/gpt-oss-120 was not read and is not in the catalog", "warning: 1 of them at the top"
    assert f"  warning: {warning}" in output.partition(f"{TYPICAL}:")[0]
    assert f"  {last}\n" in output
    assert "at the top" not in play("playbooks/plan.yml").output


def test_models_are_listed_for_typical_nodes() -> None:
    lines = play("playbooks/models.yml").assert_unchanged().shown("Show the models")
    assert lines[-1] == f"33 of 34 models fit on 2 nodes ({TYPICAL})"


def test_a_run_that_changes_nodes_refuses_typical_facts() -> None:
    done = play("site.yml")
    assert done.status != 0
    assert "gb10_plan_offline: typical. Expected: false, because this playbook changes nodes." in done.output
