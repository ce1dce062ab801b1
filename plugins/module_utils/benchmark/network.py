# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network's figures in a benchmark: round-trip times now, and the last measured bandwidth of NCCL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

#: Most characters of a record.
_MOST = 1024**2


def figures(rtts: Sequence[Mapping[str, Any]], text: str) -> dict[str, Any]:
    """Return {rtts, bandwidth}. ``rtts``: of fabric_probe; ``text``: the record of benchmark_nccl.yml, "" if none.

    ``bandwidth`` is {date, backend, gbps: {run: {collective: 10^9 bytes per second of its largest message}}}, or {}
    without a valid record. The run "together" uses all rails, the others one RDMA device each.
    """
    return {"rtts": [dict(each) for each in rtts], "bandwidth": _bandwidth(text) if text else {}}


def _bandwidth(text: str) -> dict[str, Any]:
    try:
        found = bounded_json.load(text, _MOST)
        gbps = {str(name): _largest(results) for name, results in found["runs"].items()}
        return {"date": str(found["date"]), "backend": str(found["backend"]), "gbps": gbps}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def _largest(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the bus bandwidth of each collective with its largest message."""
    ordered = sorted(results, key=lambda each: int(each["bytes"]))
    return {str(each["collective"]): float(each["bus_gbps"]) for each in ordered}


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return a line for each path and for each measured run."""
    times = [f"network: {each['interface']} to {each['peer']}, {_time(each)}" for each in found["rtts"]]
    bandwidth = found["bandwidth"]
    measured = [
        f"network: {bandwidth['backend']} {name}, "
        + ", ".join(f"{collective} {value:.1f} GB/s" for collective, value in values.items())
        + f" ({bandwidth['date']})"
        for name, values in bandwidth.get("gbps", {}).items()
    ]
    return [*times, *measured]


def _time(each: Mapping[str, Any]) -> str:
    if each["avg_ms"] is None:
        return "no reply"
    return f"round trip {each['avg_ms']:.3f} ms, longest {each['max_ms']:.3f} ms"
