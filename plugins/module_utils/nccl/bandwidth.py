# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bandwidth between the nodes of a cluster: the runs of nccl_bandwidth.py and the evaluation of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch.overrides import rank_environment
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, PlannedNode

#: NVIDIA warns below this bus bandwidth, in 10^9 bytes per second, of the largest message over all devices together.
#: Source: dgx-spark-playbooks, spark_cluster_setup.py (175 Gbit/s, and 80 in a ring).
EXPECTED, EXPECTED_RING = 21.875, 10.0
#: The size of a typical all-reduce of a decode step, and the longest accepted seconds of one: three times the published
#: value, 67 to 77 us between two to four Sparks over RoCE. Source: christopherowen/dgx-spark-networking (2026-10); its
#: own all-reduce takes 10.9 us.
SMALL, SLOW = 10 << 10, 200e-6
#: Prefixes of the variables that a collective's libraries read. Others could expose a token in arguments and logs.
_READ = ("NCCL_", "GLOO_", "TP_", "UCX_", "CUDA_", "OMP_", "LD_PRELOAD")
TOGETHER = "together"
UNIT = "gb10-nccl-bandwidth.service"


@dataclass(frozen=True)
class BandwidthSettings:
    """The measurement: PyTorch's backend, the ranks' port, the largest message, the seconds of a run, and the lowest
    accepted bus bandwidth, 0 for NVIDIA's."""

    backend: str
    port: int
    bytes: int
    timeout: int
    expected: float


@dataclass(frozen=True)
class Measurement:
    """The seconds of a collective with a message of these bytes, and its bus bandwidth in 10^9 bytes per second."""

    collective: str
    bytes: int
    seconds: float
    bus_gbps: float


#: Name of a run -> its measurements.
Results = Mapping[str, Sequence[Measurement]]


def measured(outputs: Mapping[str, Any]) -> Results:
    """Return the results of the program's output of each run, which has further keys. Raises TypeError."""
    return {
        name: [load.load(Measurement, entry, name) for entry in output["results"]] for name, output in outputs.items()
    }


def is_ring(plan: Plan) -> bool:
    """Return whether any cable of the cluster does not reach all nodes."""
    return any(len(rail.peers) < len(plan.nodes) - 1 for node in plan.nodes for rail in node.rails)


def runs(plan: Plan, backend: str, port: int) -> list[dict[str, Any]]:
    """Return the runs as {name, environment} for the plan's node: with all of NCCL's devices, and with each if several.

    Every node has the same runs, named after the head's devices. In a ring, one device alone does not reach all nodes.
    """
    names = [node.name for node in plan.nodes]
    variables = {name: value for name, value in rank_environment(plan.node).items() if name.startswith(_READ)}
    variables |= {
        "RANK": str(names.index(plan.node.name)),
        "WORLD_SIZE": str(len(names)),
        "MASTER_ADDR": plan.head.address,
        "MASTER_PORT": str(port),
    }
    result = [{"name": TOGETHER, "environment": variables}]
    devices = [_devices(node) for node in plan.nodes]
    if backend == "nccl" and not is_ring(plan) and len(devices[0]) > 1 and len({len(each) for each in devices}) == 1:
        mine = devices[names.index(plan.node.name)]
        result += [
            {"name": head, "environment": {**variables, "NCCL_IB_HCA": device}}
            for head, device in zip(devices[0], mine, strict=True)
        ]
    return result


def argv(plan: Plan, environment: Mapping[str, str], settings: BandwidthSettings) -> list[str]:
    """Return the command that measures as this node's rank.

    Its program comes over stdin, so that no file stays on the node, and systemd stops it at the time limit.
    """
    return [
        *("systemd-run", "--wait", "--pipe", "--quiet", "--collect", f"--unit={UNIT}", f"--uid={plan.user}"),
        *("--property=LimitMEMLOCK=infinity", f"--property=RuntimeMaxSec={settings.timeout}"),
        *(f"--setenv={name}={value}" for name, value in environment.items()),
        *(of_plan.python(plan), "-", f"--bytes={settings.bytes}"),
        *(f"--backend={settings.backend}", f"--timeout={settings.timeout}"),
    ]


def expected(plan: Plan, backend: str, wanted: float) -> float:
    """Return the required bus bandwidth: ``wanted``, or NVIDIA's value for RoCE between Sparks if 0; 0 if unknown.

    One PCIe function of each port has half of it.
    """
    if wanted or backend != "nccl" or not any(_devices(node) for node in plan.nodes):
        return wanted
    least = EXPECTED_RING if is_ring(plan) else EXPECTED
    return least / 2 if plan.functions in ("first", "second") else least


def lines(results: Results) -> list[str]:
    """Return a line for each measurement, prefixed with the run's name."""
    return [
        (
            f"{name}: {entry.collective} of {entry.bytes} bytes: {entry.bus_gbps:.3f} GB/s on the bus, "
            f"{_microseconds(entry.seconds)} us"
        )
        for name, result in results.items()
        for entry in result
    ]


def record(results: Results, plan: Plan, backend: str, found: Sequence[Problem]) -> dict[str, Any]:
    """Return the measurement as a document: {format, backend, nodes, runs: {name: its results}, findings}."""
    return {
        "format": 1,
        "backend": backend,
        "nodes": [node.name for node in plan.nodes],
        "runs": load.plain(results),
        "findings": list(map(str, found)),
    }


def findings(results: Results, least: float) -> list[Problem]:
    """Return the collectives slower than ``least`` with their largest message, over all devices together."""
    largest = {each.collective: each for each in sorted(results[TOGETHER], key=lambda each: each.bytes)}
    return [
        Problem(
            f"bandwidth.{name}",
            (
                f"{entry.bus_gbps:.3f} GB/s of bus bandwidth with {entry.bytes} "
                f"bytes{_alone(results, name, entry.bytes)}"
            ),
            f"{least:g} GB/s or more",
            "stop other jobs on the GPUs or cables, then run --tags qsfp_netplan, which checks each cable and device",
        )
        for name, entry in largest.items()
        if entry.bus_gbps < least
    ]


def delays(results: Results, plan: Plan, backend: str) -> list[Problem]:
    """Return whether a small all-reduce over RoCE takes much longer than published: each layer waits for it twice."""
    if backend != "nccl" or not any(_devices(node) for node in plan.nodes):
        return []
    found = [
        entry.seconds
        for entry in results[TOGETHER]
        if entry.collective == "all_reduce" and 0 <= SMALL - entry.bytes < 4 * len(plan.nodes)
    ]
    return [
        Problem(
            "latency.all_reduce",
            f"{seconds * 1e6:.0f} us with {SMALL} bytes",
            f"{SLOW * 1e6:.0f} us or less; published are 67 to 77 us between two to four Sparks",
            "compare the lines of each device; stop other jobs on the CPUs; unset NCCL_PROTO and NCCL_ALGO",
        )
        for seconds in found
        if seconds > SLOW
    ]


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < 1e-4 else f"{seconds * 1e6:.0f}"


def _devices(node: PlannedNode) -> list[str]:
    """Return NCCL's devices, each as a value of NCCL_IB_HCA.

    A leading = means exact names. A leading ^ means all other devices, which cannot be listed one by one.
    """
    value = rank_environment(node).get("NCCL_IB_HCA", "")
    whole = "=" if value.startswith("=") else ""
    return (
        [value]
        if value.startswith("^")
        else [f"{whole}{device}" for device in value.removeprefix("=").split(",") if device]
    )


def _alone(results: Results, collective: str, size: int) -> str:
    """Return the bandwidth of each device alone, which distinguishes a slow device from a shared limit."""
    found = [
        f"{entry.bus_gbps:.3f} by {run} alone"
        for run, result in results.items()
        if run != TOGETHER
        for entry in result
        if (entry.collective, entry.bytes) == (collective, size)
    ]
    return f" ({', '.join(found)})" if found else ""
