"""Field reports as recorded machines: the planner and the checks of verify.yml on each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import field_reports
import pytest
from cluster_nodes import cluster_plan, spark
from snapshot import assert_recorded
from verified_nodes import GIB, service

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import report
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verification
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS


def test_the_report_of_a_pair_is_the_recorded_one() -> None:
    """The first recorded report is that of the simulated pair. Reports of users are added as they are."""
    settings = {"gb10_model": "gpt-oss-120b"}
    plan, problems = cluster_plan([spark(1, "head", **settings), spark(2, "worker", **settings)])
    assert problems == []
    links = [
        {"interface": twin.interface, "carrier": port == 1, "speed": 200000 if port == 1 else None, "hca": twin.hca, "state": state}
        for port, twins in SPARK_PORTS.items()
        for state in ["ACTIVE" if port == 1 else "DOWN"]
        for twin in twins
    ]
    observed: dict[str, Any] = {}
    for node in plan["nodes"]:
        units = ["gb10-ray.service", "gb10-vllm.service"] if node["head"] else ["gb10-ray.service"]
        api = {"healthy": True, "answers": True, "answered_after": 0.2} if node["head"] else {}
        status = {"services": list(map(service, units)), "ranks": [{"bytes": 40 * GIB}], "available": 60 * GIB, "total": 119 * GIB}
        info = {"gpu": {"gpus": [{"name": "NVIDIA GB10"}]}, "kernel": "6.17.0-1031-nvidia", "cma_total_bytes": 0}
        observed[node["name"]] = {"info": info, "status": {**status, "driver": "580.142", "links": links, "error": {}, "api": api}}
    found = report.document(plan, {}, observed, [], "2026-11-22")
    assert_recorded(field_reports.FOLDER / "simulated_pair.json", json.dumps(found, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", field_reports.REPORTS)
def test_the_plan_of_a_recorded_report_is_the_reported_one(name: str) -> None:
    recorded = field_reports.load(name)
    plan, problems = cluster_plan(field_reports.planner_nodes(recorded))
    assert problems == []
    compared = ("quantization", "executor", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "mtu")
    assert {key: plan[key] for key in compared} == {key: recorded["plan"][key] for key in compared}
    assert [len(node["rails"]) for node in plan["nodes"]] == [len(node["rails"]) for node in recorded["nodes"]]


def found(recorded: dict[str, Any]) -> set[str]:
    known = verification.cluster(field_reports.verified_nodes(recorded))
    return {finding.check.id for finding in verification.findings(known, GROUPS, {})}


@pytest.mark.parametrize("name", field_reports.REPORTS)
def test_each_recorded_report_is_verified(name: str) -> None:
    """A report of a user that has findings needs its own entry here."""
    assert found(field_reports.load(name)) == set()


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], None], set[str]]] = {
    "a cable": (lambda node: node["links"][2].update(carrier=False, state="DOWN"), {"rail-down"}),
    "the driver": (lambda node: node.update(driver="590.48.01"), {"driver-590", "driver-differs"}),
    "the kernel": (lambda node: node.update(kernel="6.17.0-1008-nvidia"), {"kernel-differs", "kernel-6-17-0-1008"}),
    "a service": (lambda node: node["services"][0].update(active="failed"), {"service-down"}),
    "a rank": (lambda node: node["ranks_bytes"].clear(), {"rank-missing"}),
    "the memory": (lambda node: node.update(available_bytes=GIB), {"memory-exhausted"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_report_is_found(fault: str) -> None:
    plant, expected = FAULTS[fault]
    recorded = field_reports.load("simulated_pair")
    plant(recorded["nodes"][1])
    assert found(recorded) == expected
