"""Field reports as recorded machines: the planner and the checks of verify.yml on each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import field_reports
import pytest
from cluster_nodes import cluster_plan, spark
from snapshot import assert_recorded
from typed_plans import typed
from verified_nodes import GIB, cluster, findings, pair

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import io_words, report
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verify_report

PROBE = [
    {"name": name, "state": "passed", "cause": "", "error": 0.01, "bound": 0.02, "seconds": 1.0, "message": ""}
    for name in gpu_probe.CHECKS
]


def test_the_report_of_a_pair_is_the_recorded_one() -> None:
    """The first recorded report is that of the simulated pair. Reports of users are added as they are."""
    settings = {"gb10_model": "gpt-oss-120b"}
    plan, problems = cluster_plan([spark(1, "head", **settings), spark(2, "worker", **settings)])
    assert problems == []
    links = [
        {
            "interface": twin.interface,
            "carrier": port == 1,
            "speed": 200000 if port == 1 else None,
            "hca": twin.hca,
            "state": state,
        }
        for port, twins in SPARK_PORTS.items()
        for state in ["ACTIVE" if port == 1 else "DOWN"]
        for twin in twins
    ]
    nodes = [{**node, "probe": PROBE} for node in pair()]
    for node in nodes:
        node["facts"]["links"] = links
    found = report.document(typed(plan), cluster(nodes), {}, {}, "2026-11-22", io_words.public(), {}, "")
    assert (found["verification"]["findings"], found["verification"]["differences"]) == ([], [])
    assert found["verification"]["passed"] == [check.id for check in verify_report.CHECKS]
    assert_recorded(field_reports.FOLDER / "simulated_pair.json", json.dumps(found, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", field_reports.REPORTS)
def test_the_plan_of_a_recorded_report_is_the_reported_one(name: str) -> None:
    recorded = field_reports.load(name)
    plan, problems = cluster_plan(field_reports.planner_nodes(recorded))
    assert problems == []
    compared = (
        "quantization",
        "executor",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "mtu",
    )
    assert {key: plan[key] for key in compared} == {key: recorded["plan"][key] for key in compared}
    assert [len(node["rails"]) for node in plan["nodes"]] == [len(node["rails"]) for node in recorded["plan"]["nodes"]]


def found(recorded: dict[str, Any]) -> set[str]:
    return set(findings(field_reports.verified_nodes(recorded)))


@pytest.mark.parametrize("name", field_reports.REPORTS)
def test_each_recorded_report_is_verified(name: str) -> None:
    """A report has no facts for some checks, and a finding of others must be in it."""
    recorded = field_reports.load(name)
    assert found(recorded) <= {each["id"] for each in recorded["verification"]["findings"]}


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], None], set[str]]] = {
    "a cable": (lambda node: node["links"][2].update(carrier=False, state="DOWN"), {"rail-down"}),
    "the driver": (lambda node: node["gpu"].update(driver_version="590.48.01"), {"driver-590", "driver-differs"}),
    "the kernel": (lambda node: node.update(kernel="6.17.0-1008-nvidia"), {"kernel-differs", "kernel-6-17-0-1008"}),
    "a service": (lambda node: node["services"][0].update(active="failed"), {"service-stopped"}),
    "a rank": (lambda node: node["ranks"].clear(), {"rank-missing"}),
    "the memory": (lambda node: node.update(available=GIB), {"memory-exhausted"}),
    "a package": (lambda node: node["packages"].update(vllm="0.31.0"), {"packages-differ"}),
    "the firmware": (lambda node: node["firmware"].update(rocep1s0f0="1.0"), {"firmware-differs"}),
    "the BIOS": (lambda node: node.update(bios="1.0"), {"bios-differs"}),
    "the next kernel": (lambda node: node["boot"].update(missing=["nvidia"]), {"kernel-without-driver"}),
    "the clock": (lambda node: node["gpu_state"].update(clock_mhz=600.0), {"gpu-clock-stuck"}),
    "the GPU code": (
        lambda node: node["kernels"]["extensions"]["vllm/_C_stable_libtorch"].update(same_major=0, ptx=0),
        {"kernel-missing"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_report_is_found(fault: str) -> None:
    plant, expected = FAULTS[fault]
    recorded = field_reports.load("simulated_pair")
    plant(recorded["nodes"][1]["facts"])
    assert found(recorded) == expected


def test_a_failed_probe_in_a_report_is_found() -> None:
    recorded = field_reports.load("simulated_pair")
    recorded["nodes"][1]["gpu_probe"][0].update(state="failed", cause="wrong_result")
    assert found(recorded) == {"gpu-probe-failed"}
