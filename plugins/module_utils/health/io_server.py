# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the served model: its service, its API, its log and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as common_argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_local import Secret
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_smoke
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

#: The options of the module vllm_info, which documents them.
ARGUMENTS: dict[str, Any] = {
    "name": {"type": "str", "default": "gb10-vllm.service"},
    "url": {"type": "str", "required": True},
    "model": {"type": "str", "default": ""},
    "timeout": {"type": "int", "default": 60},
    "key_file": {"type": "path", "default": "", "no_log": False},
    "invocation": {"type": "str", "default": ""},
    **common_argument_spec.API,
}
_LOG_LINES = 3000


def read(run: Run, params: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the result of module vllm_info without the log's part, and the log. Raises ValueError or OSError."""
    service = node_io_facts.service(run, params["name"])
    server = _server(params)
    healthy, untrusted = io_client.health(server) if service["pid"] else (False, "")
    answers, reason = None, ""
    if healthy and params["model"]:
        answers, reason = io_client.answers(server, params["model"], params["timeout"], _secret(params))
    invocation = params["invocation"] or service["invocation"]
    entries = io_client.journal(run, io_client.of_start(invocation), _LOG_LINES) if invocation else []
    found = {
        "service": service,
        "healthy": healthy,
        "untrusted": untrusted,
        "answers": answers,
        "reason": reason,
        "ready_after": io_client.ready_after(entries, service["started"]),
    }
    return found, [message for _when, message in entries]


def smoke(params: Mapping[str, Any], requests: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers to the smoke test's ``requests`` of the server in ``params``: {answers, answered, lines,
    problems}."""
    return io_smoke.result(_server(params), params["model"], secret=_secret(params), **requests)


def _secret(params: Mapping[str, Any]) -> Secret:
    return io_client.api_key(params["key_file"], params["name"])


def _server(params: Mapping[str, Any]) -> io_client.Server:
    return io_client.Server(params["url"], params["ca_file"], params["server_name"])
