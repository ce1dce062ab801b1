# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for free memory before a server starts.

Drops the page cache and waits until enough memory is available. The memory of a stopped server returns with a delay.
On timeout, reports the available memory, the needed memory, and the largest processes.
In check mode neither drops the page cache nor waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_file import read
from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim, reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``node``: The node's name, for the message.
    ``needed``: Bytes that must be available, or 0 if unknown, for which it does not wait.
    ``timeout``: Maximum wait in seconds.
    ``drop_caches``: Whether to drop the page cache.
    ``required``: Whether too little memory is a failure. Otherwise a play can report all nodes together.
    """

    node: str
    needed: int
    timeout: int = 120
    drop_caches: bool = True
    required: bool = True


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {available: bytes at the end, waited: seconds, problem: the error message, "" with enough memory}."""
    if given.drop_caches and not module.check_mode:
        try:
            io_reclaim.drop_caches()
        except OSError as error:
            fix = "if the kernel does not allow it, set drop_caches: false."
            raise ValueError(f"Cannot drop the page cache: {error}. Fix: {fix}") from error
    available, waited = io_reclaim.wait(given.needed, 0 if module.check_mode else given.timeout)
    total = node_parse.total_memory(read("/proc/meminfo"))
    short = available < given.needed
    held = (io_reclaim.processes(), io_reclaim.gpu_processes(runner(module))) if short else ([], [])
    problem = reclaim.refusal(given.node, given.needed, available, total, waited, *held)
    if problem and given.required and not module.check_mode:
        raise ValueError(str(problem))
    return {"changed": False, "available": available, "waited": round(waited, 1), "problem": str(problem or "")}
