# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory reclaim on a node: drop the page cache, wait for freed memory, and list the processes that hold memory."""

from __future__ import annotations

import glob
import os
import time
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import read
from ansible_collections.gb10.cluster.plugins.module_utils.memory import reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse

DROP_CACHES = "/proc/sys/vm/drop_caches"
#: Page cache, and the kernel's own objects. Source: Linux, Documentation/admin-guide/sysctl/vm.rst.
_ALL = "3"
_PAUSE_SECONDS = 1


def drop_caches(path: str = DROP_CACHES) -> None:
    """Write dirty pages and drop the caches. Raises OSError."""
    os.sync()
    with open(path, "w", encoding="ascii") as file:
        file.write(_ALL)


def available() -> int:
    """Return MemAvailable in bytes. Raises ValueError."""
    return node_parse.available_memory(read("/proc/meminfo"))


def wait(needed: int, timeout: float) -> tuple[int, float]:
    """Wait until this many bytes are available. Returns (bytes available at the end, seconds waited)."""
    begin = time.monotonic()
    while (found := available()) < needed and time.monotonic() - begin < timeout:
        time.sleep(_PAUSE_SECONDS)
    return found, time.monotonic() - begin


def processes() -> list[dict[str, Any]]:
    """Return {pid, name, bytes} of every process; the bytes are resident memory."""
    found = ((int(path.split("/")[2]), reclaim.resident(read(path))) for path in glob.iglob("/proc/[0-9]*/status"))
    return [{"pid": pid, "name": entry[0], "bytes": entry[1]} for pid, entry in found if entry]


def gpu_processes(run: Run) -> list[dict[str, Any]]:
    """Return the GPU processes that nvidia-smi lists; [] if nvidia-smi fails."""
    status, stdout, _stderr = run(
        ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"]
    )
    return reclaim.gpu_processes(stdout) if status == 0 else []
