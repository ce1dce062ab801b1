# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the choices that the ranks of vLLM's running start logged, from the journal of its unit on this node.

With mp, each node has the lines of its ranks. With Ray, the head has those of all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.health import status as health_status
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices, start

#: The begin of a start's log that is read, as JSON.
_MOST_LOG = 8 << 20


def read(run: Run, service: Mapping[str, Any]) -> dict[str, Any]:
    """Return {processes, complete, start} of a running unit: see choices.read(), whether all messages of the start were
    read, and start.read().

    ``service``: the facts of io_facts.service(). Raises ValueError if journalctl fails.
    """
    entries, whole = io_client.journal_begin(run, io_client.of_start(service["invocation"]), _MOST_LOG)
    lines = [text for _when, text in entries]
    begins = any(map(health_status.STARTING.match, lines))
    return {
        "processes": choices.read(lines),
        "complete": begins and (whole or any(io_client.READY in text for text in lines)),
        "start": start.read(entries) if begins else {},
    }
