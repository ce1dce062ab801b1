# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of driver, kernel, firmware, GPU, temperature, clock and disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, RUNNING, WARNING, Check
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import POWER_CAP
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify.existing import of_rule
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import (
    RECORDED,
    Cluster,
    VerifiedNode,
    of_nodes,
)

_GIB = 1 << 30
#: A stuck GB10 has 700 to 800 MHz at P0 under load. Its normal clock under load is above 2000 MHz.
_CLOCK_MHZ, _LOAD_PERCENT = 1000, 50
_HOT_C = 90
#: Seconds between a node and the controller that are tolerated.
_CLOCK_SECONDS = 5
_FULL_BYTES, _FULL_FILES, _LOW_BYTES, _LOW_PART = _GIB, 0.01, 20 * _GIB, 0.05


@of_nodes
def _gpu(node: VerifiedNode) -> Iterator[str]:
    if node.facts.get("gpu_device") and not node.part("gpu").get("gpus"):
        yield f"the PCI bus has a GPU, but {node.part('gpu').get('reason') or 'nvidia-smi lists none'}"


@of_nodes
def _next_boot(node: VerifiedNode) -> Iterator[str]:
    if lacking := node.part("boot").get("missing"):
        yield f"kernel {node.part('boot')['kernel']} starts next and lacks {', '.join(lacking)}"


@of_nodes
def _slow_clock(node: VerifiedNode) -> Iterator[str]:
    yield from (check["message"] for check in node.probe if check["cause"] == gpu_probe.STUCK)
    state = node.part("gpu_state")
    clock, load = state.get("clock_mhz"), state.get("utilization")
    if clock is not None and load is not None and clock < _CLOCK_MHZ and load >= _LOAD_PERCENT:
        power = "unknown power" if state.get("power_w") is None else f"{state['power_w']:g} W"
        limit = f", limit {state['limit_mhz']} MHz" if state.get("limit_mhz") else ""
        yield f"{clock:g} MHz at {load:g} % utilization and {power}{limit}"


@of_nodes
def _hot(node: VerifiedNode) -> Iterator[str]:
    state = node.part("gpu_state")
    # It is not known how often a healthy GB10 reaches its power cap.
    if reasons := [reason for reason in state.get("slowed") or () if reason != POWER_CAP]:
        yield f"{', '.join(reasons)} at {state['clock_mhz']} MHz"
    for name, value in (("GPU", state.get("temperature_c")), ("host", node.facts.get("temperature_c"))):
        if value is not None and value > _HOT_C:
            yield f"{name} at {value:g} degrees Celsius"


@of_nodes
def _clock(node: VerifiedNode) -> Iterator[str]:
    clock = node.facts.get("clock")
    if clock is not None and node.finished:
        behind, ahead = node.started - clock, clock - node.finished
        if max(behind, ahead) > _CLOCK_SECONDS:
            yield f"its clock is {max(behind, ahead):.0f} s {'behind' if behind > ahead else 'ahead'}"


@of_nodes
def _full(node: VerifiedNode) -> Iterator[str]:
    for disk, space in _disks(node):
        files = f", {disk['files_free']:.1%} of its files are free" if disk["files_free"] < _FULL_FILES else ""
        if files or disk["free"] < _full_below(disk):
            yield f"{space}{files}"


@of_nodes
def _low(node: VerifiedNode) -> Iterator[str]:
    for disk, space in _disks(node):
        if _full_below(disk) <= disk["free"] < min(_LOW_BYTES, _LOW_PART * disk["total"]):
            yield space


def _disks(node: VerifiedNode) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the file systems, and their space as text."""
    for disk in node.facts.get("disks") or ():
        yield disk, f"{disk['path']} has {disk['free'] / _GIB:.1f} of {disk['total'] / _GIB:.1f} GiB free"


def _full_below(disk: Mapping[str, Any]) -> float:
    # A separate /boot has a GiB in all.
    return float(min(_FULL_BYTES, _LOW_PART * disk["total"]))


@of_nodes
def _unread(node: VerifiedNode) -> Iterator[str]:
    yield from (f"{part}: {reason}" for part, reason in sorted(node.part("unread").items()))


_hardware = partial(Check[Cluster], RUNNING, topic="hardware", tested=RECORDED)

CHECKS = (
    *(
        of_rule(name, "hardware")
        for name in (
            "driver-590",
            "driver-old",
            "driver-differs",
            "kernel-differs",
            "os-level-differs",
            "kernel-cma",
            "kernel-7-0-0-1019",
            "kernel-6-17-0-1008",
        )
    ),
    _hardware(
        "gpu-unavailable",
        ERROR,
        expected="nvidia-smi lists the GPU",
        why="the driver does not work: its modules do not belong to the running kernel, or it failed",
        fix="install linux-modules-nvidia of the running kernel, or boot the former kernel; read journalctl -k",
        source="eugr/spark-vllm-docker#392",
        detect=_gpu,
    ),
    _hardware(
        "kernel-without-driver",
        ERROR,
        expected="the kernel of the next boot has the modules of GPU and RDMA that run now",
        why="after the next reboot, the node has no GPU or no RDMA",
        fix="install the packages of modules of that kernel, or remove the kernel; docs/updates.md",
        source="eugr/spark-vllm-docker#392; TechPreacher/dgx-spark-vllm-cluster, preboot-check",
        detect=_next_boot,
    ),
    _hardware(
        "gpu-clock-stuck",
        WARNING,
        expected="a clock of 1000 MHz or more under load",
        why="a stuck low-power state halves the speed; a reboot and nvidia-smi -lgc do not help",
        fix="shut the node down, disconnect its power supply for a minute, and start it",
        source="eugr/spark-vllm-docker#334 (702 MHz: 24 to 28 tokens/s, 50 to 53 afterwards)",
        detect=_slow_clock,
    ),
    _hardware(
        "temperature-high",
        WARNING,
        expected="at most 90 degrees Celsius, and no slowdown of the GPU by heat or its power supply",
        why="the node reduces its clocks, or switches off",
        fix="clear its air inlet, use its own power supply, or limit the clock: host_guard_gpu_clock: 2100",
        source="reports of 95 degrees Celsius and sudden power-off; NVIDIA/open-gpu-kernel-modules#1358",
        detect=_hot,
    ),
    _hardware(
        "firmware-differs",
        WARNING,
        expected="the same ConnectX firmware on all nodes",
        why="updates reach each machine on a different day; older firmware connects a PCIe half with two lanes",
        fix="run fwupdmgr refresh and fwupdmgr update on all nodes, then switch them off and on",
        source="tonyd2wild/DeepSeek-v4-Flash issue 35",
        detect=partial(differences.found, "firmware-differs"),
    ),
    _hardware(
        "bios-differs",
        WARNING,
        expected="the same BIOS on all nodes of a product",
        why="updates reach each machine on a different day; the BIOS sets PCIe lanes and power limits",
        fix="run fwupdmgr refresh and fwupdmgr update on all nodes, then switch them off and on",
        source="tonyd2wild/DeepSeek-v4-Flash issue 35",
        detect=partial(differences.found, "bios-differs"),
    ),
    _hardware(
        "clock-wrong",
        WARNING,
        expected="a difference of at most 5 s to the controller",
        why="certificates and tokens appear invalid, and the logs of the nodes cannot be compared",
        fix="run timedatectl set-ntp true on the node, and check that it reaches a time server",
        source="systemd-timesyncd(8)",
        detect=_clock,
    ),
    _hardware(
        "disk-full",
        ERROR,
        expected="at least 1 GiB (5 % of a small disk), and 1 % of the files, free on each file system",
        why="logs, compiled kernels and Ray's files cannot be written, so that the next start fails",
        fix="remove models or images that are not used; df -h and du -xh --max-depth=2 / list them",
        source="reports of disks that a second download of a model filled",
        detect=_full,
    ),
    _hardware(
        "disk-low",
        WARNING,
        expected="at least 20 GiB or 5 % free on each file system",
        why="a download, an image or a log can fill the disk",
        fix="remove models or images that are not used; df -h and du -xh --max-depth=2 / list them",
        source="reports of disks that a second download of a model filled",
        detect=_low,
    ),
    _hardware(
        "facts-unread",
        WARNING,
        expected="all facts of the node can be read",
        why="a part of the node could not be verified",
        fix="correct the reason, such as a missing command, and run the verification again",
        source="this module's own report",
        detect=_unread,
    ),
)
