# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert a node's report about itself to the values of a sample."""

from __future__ import annotations

import re
from dataclasses import fields

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine
from ansible_collections.gb10.cluster.plugins.module_utils.health import metrics

#: Priority and facility, sequence number, microseconds since boot, flags; then the text. Source: the kernel's dev-kmsg.
_RECORD = re.compile(r"(\d{1,6}),\d{1,19},(\d{1,19}),[^;]*;([^\n]*)", re.ASCII)
_PRESSURE = re.compile(r"^some avg10=(\d{1,3}(?:\.\d{1,4})?) ", re.MULTILINE | re.ASCII)
_LOAD = re.compile(r"(\d{1,6}(?:\.\d{1,4})?) ", re.ASCII)
_COUNT = re.compile(r"\s*(\d{1,19})\s*", re.ASCII)
#: A data counter of an RDMA port counts words of four bytes. Source: the kernel's stable ABI of sysfs-class-infiniband.
RDMA_WORD = 4


def engine(page: str) -> Engine | None:
    """Return the engine's values on a /metrics page, None without any."""
    found = metrics.read(page)
    known = {each.name: found[each.name] for each in fields(Engine) if each.name in found}
    return Engine(**known) if known else None


def memory(meminfo: str) -> tuple[int | None, int | None, int | None]:
    """Return available, total, and used swap in bytes of /proc/meminfo; None for a missing value."""
    lines = (line.partition(":") for line in meminfo.splitlines())
    found = {name: int(value[:-3]) << 10 for name, _colon, value in lines if value.endswith(" kB")}
    swap = found.get("SwapTotal"), found.get("SwapFree")
    used = None if swap[0] is None or swap[1] is None else swap[0] - swap[1]
    return found.get("MemAvailable"), found.get("MemTotal"), used


def pressure(text: str) -> float | None:
    """Return the value of /proc/pressure/memory, None without one."""
    match = _PRESSURE.search(text)
    return float(match[1]) if match else None


def load(text: str) -> float | None:
    """Return the first value of /proc/loadavg, None without one."""
    match = _LOAD.match(text)
    return float(match[1]) if match else None


def count(text: str, factor: int = 1) -> int | None:
    """Return a number in a file of /sys, None for another text: an interface without carrier has speed -1."""
    match = _COUNT.fullmatch(text)
    return int(match[1]) * factor if match else None


def port_state(text: str) -> str:
    """Return the state of an RDMA port, such as ACTIVE from "4: ACTIVE", "" if unknown."""
    return text.partition(":")[2].strip()[:16]


def kernel_line(record: str) -> str:
    """Return a record of /dev/kmsg as "[seconds since boot] text", "" for one that a program wrote."""
    match = _RECORD.match(record)
    if not match or int(match[1]) >> 3:
        return ""
    return f"[{int(match[2]) / 1e6:.3f}] {match[3]}"
