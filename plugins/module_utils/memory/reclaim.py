# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a node has the memory back that a server is to be started with, and who holds it if not.

What a stopped server held comes back late, and a crashed one's sometimes not before a reboot. On a GB10 the GPU takes what MemAvailable
counts, so a start without it ends in a refusal by vLLM at best, and at worst takes the whole host.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

GIB = 1 << 30
#: How many processes a report names.
LARGEST = 5


def resident(status: str) -> tuple[str, int] | None:
    """Return (name, resident bytes) of a /proc/PID/status, None of a kernel thread or of a process that ended meanwhile."""
    name, size = (re.search(rf"^{key}:\s+(.+?)(?: kB)?$", status, re.MULTILINE) for key in ("Name", "VmRSS"))
    return (name[1], int(size[1]) * 1024) if name and size else None


def gpu_processes(text: str) -> list[dict[str, Any]]:
    """Turn `nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader,nounits` into [{pid, name, bytes}].

    ``bytes`` is None where nvidia-smi tells none, as it may for unified memory.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    return [
        {"pid": int(row[0]), "name": row[1], "bytes": int(row[2]) << 20 if row[2].isdigit() else None}
        for row in rows
        if len(row) == 3 and row[0].isdigit()
    ]


def refusal(
    name: str, needed: int, available: int, total: int, waited: float, processes: Sequence[Mapping[str, Any]], gpu: Sequence[Mapping[str, Any]]
) -> Problem | None:
    """Return what keeps a server from being started on a node, None if nothing does; sizes in bytes, ``processes`` as {pid, name, bytes}."""
    if available >= needed:
        return None
    largest = sorted(processes, key=lambda process: -process["bytes"])[:LARGEST]
    held = [f"the largest processes are {_list(largest)}"] + ([f"the GPU's are {_list(gpu)}"] if gpu else [])
    return Problem(
        f"{name}.memory",
        f"{name} has {_gib(available)} GiB of memory available of {_gib(total)} GiB after waiting {waited:.0f} s; {'; '.join(held)}",
        f"{_gib(needed)} GiB, which the plan needs there",
        "stop what holds it; if nothing does, reboot the node",
    )


def _list(processes: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{entry['name']} (pid {entry['pid']}, {_size(entry['bytes'])})" for entry in processes) or "unknown"


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{_gib(size)} GiB"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
