# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that a node has enough free memory to start a server, and report the processes that hold memory if not.

The memory of a stopped server returns with a delay, that of a crashed one sometimes only after a reboot. On a GB10 the
GPU allocates from MemAvailable. A start with too little memory makes vLLM refuse at best, and the whole host fail at
worst.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

GIB = 1 << 30
#: Maximum number of processes in a report.
LARGEST = 5


def resident(status: str) -> tuple[str, int] | None:
    """Return (name, resident bytes) from a /proc/PID/status, None for a kernel thread or a process that has ended."""
    name = re.search(r"^Name:\s+(.+)$", status, re.MULTILINE)
    size = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    # A process chooses its name.
    return ("".join(filter(str.isprintable, name[1])), int(size[1]) * 1024) if name and size else None


def gpu_processes(text: str) -> list[dict[str, Any]]:
    """Return [{pid, name, bytes}] from nvidia-smi's output.

    Command: `nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader,nounits`. ``bytes`` is
    None if nvidia-smi reports no size, which can happen with unified memory.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    return [
        {"pid": int(row[0]), "name": row[1], "bytes": int(row[2]) << 20 if row[2].isdigit() else None}
        for row in rows
        if len(row) == 3 and row[0].isdigit()
    ]


def refusal(
    name: str,
    needed: int,
    available: int,
    total: int,
    waited: float,
    processes: Sequence[Mapping[str, Any]],
    gpu: Sequence[Mapping[str, Any]],
) -> Problem | None:
    """Return the Problem if a node lacks memory for a server, otherwise None.

    Sizes are in bytes; ``processes`` and ``gpu`` contain {pid, name, bytes}.
    """
    if available >= needed:
        return None
    largest = sorted(processes, key=lambda process: -process["bytes"])[:LARGEST]
    held = [f"the largest processes are {_list(largest)}"] + ([f"the GPU processes are {_list(gpu)}"] if gpu else [])
    return Problem(
        f"{name}.memory",
        f"{name} has {_gib(available)} of {_gib(total)} GiB memory available after waiting {waited:.0f} s; "
        f"{'; '.join(held)}",
        f"{_gib(needed)} GiB available, as in the memory plan",
        "stop the processes that hold the memory; if there are none, reboot the node",
    )


def _list(processes: Sequence[Mapping[str, Any]]) -> str:
    return (
        ", ".join(f"{entry['name']} (pid {entry['pid']}, {_size(entry['bytes'])})" for entry in processes) or "unknown"
    )


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{_gib(size)} GiB"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
