# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the served model: its service, its API, its log and its answer.

The wait for a start calls it every two seconds, and a node compiles the code of each call. So it imports little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, log, symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

#: Lines of the log of one start.
_LINES = 3000


def read(run: Run, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the module vllm_info. ``params``: its options. Raises ValueError or OSError."""
    service = node_io_facts.service(run, params["name"])
    server = Server(params["url"], params["ca_file"], params["server_name"])
    healthy, untrusted = io_client.health(server) if service["pid"] else (False, "")
    answers, reason = None, ""
    if healthy and params["model"]:
        secret = io_client.api_key(params["key_file"], params["name"])
        answers, reason = io_client.answers(server, params["model"], params["timeout"], secret)
    invocation = params["invocation"] or service["invocation"]
    entries = io_client.journal(run, io_client.of_start(invocation), _LINES) if invocation else []
    lines = [message for _when, message in entries]
    return {
        "service": service,
        "healthy": healthy,
        "untrusted": untrusted,
        "answers": answers,
        "reason": reason,
        "progress": log.progress(lines),
        "cause": symptoms.explain(lines),
        "ready_after": io_client.ready_after(entries, service["started"]),
    }
