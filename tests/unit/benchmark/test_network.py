"""The network's figures in the document of a benchmark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from decisions import decide
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network

RTT = {
    "interface": "enp1s0f1np1",
    "peer": "spark2",
    "lost_percent": 0.0,
    "min_ms": 0.021,
    "avg_ms": 0.034,
    "max_ms": 0.101,
}
SILENT = {**RTT, "interface": "enP2p1s0f1np1", "lost_percent": 100.0, "min_ms": None, "avg_ms": None, "max_ms": None}


def entry(collective: str, size: int, gbps: float) -> dict[str, Any]:
    return {"collective": collective, "bytes": size, "seconds": 0.001, "bus_gbps": gbps}


def measured() -> str:
    """Return the record of playbooks/benchmark_nccl.yml."""
    together = [
        entry("all_reduce", 1 << 30, 22.25),
        entry("all_reduce", 1 << 20, 9.0),
        entry("all_gather", 1 << 30, 21.0),
    ]
    results = {"together": {"results": together}, "rocep1s0f1": {"results": [entry("all_reduce", 1 << 30, 11.5)]}}
    options = {"backend": "nccl", "port": 8471, "bytes": 1 << 30, "timeout": 300, "expected": 0.0}
    variables = {f"nccl_sm121_build_bandwidth_{name}": value for name, value in options.items()}
    report = decide("nccl_bandwidth", {"measured": results}, fact({}), variables=variables)[0]
    assert report["record"]["nodes"] == ["spark1", "spark2"]
    assert report["record"]["findings"] == report["findings"] != []
    return json.dumps({**report["record"], "date": "2026-11-22T21:30:00Z"})


def test_figures_and_lines() -> None:
    found = network.figures([RTT, SILENT], measured())
    gbps = {"together": {"all_reduce": 22.25, "all_gather": 21.0}, "rocep1s0f1": {"all_reduce": 11.5}}
    assert found == {
        "rtts": [RTT, SILENT],
        "bandwidth": {"date": "2026-11-22T21:30:00Z", "backend": "nccl", "gbps": gbps},
    }
    assert network.lines(found) == [
        "network: enp1s0f1np1 to spark2, round trip 0.034 ms, longest 0.101 ms",
        "network: enP2p1s0f1np1 to spark2, no reply",
        "network: nccl together, all_reduce 22.2 GB/s, all_gather 21.0 GB/s (2026-11-22T21:30:00Z)",
        "network: nccl rocep1s0f1, all_reduce 11.5 GB/s (2026-11-22T21:30:00Z)",
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"runs": []}', '{"runs": {"x": [{"bytes": "many"}]}, "date": 1, "backend": "nccl"}']
)
def test_an_invalid_record_is_ignored(text: str) -> None:
    assert network.figures([], text) == {"rtts": [], "bandwidth": {}}
    assert network.lines(network.figures([], text)) == []
