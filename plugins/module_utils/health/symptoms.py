# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the cause and fix of a failed start or a wrong state (docs/troubleshooting.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import LOG, PAGES, Check, Finding
from ansible_collections.gb10.cluster.plugins.module_utils.health import log as health_log
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES

#: Maximum characters of an error in a message.
_SHOWN = 500
#: Restarts of a service that count as repeated, and the seconds within which the last one happened.
_RESTARTS, _RECENT = 3, 600
#: Available parts of the memory below which it is exhausted, or held although nothing is served.
_EXHAUSTED, _HELD = 0.02, 0.5


def diagnose(lines: Sequence[str]) -> tuple[str, Check[str] | None]:
    """Return the first error in the log lines of a start, "" without one, and its symptom, None if it is unknown."""
    error, details, others = health_log.evidence(lines)
    near = [error, *details] if error else others
    for symptoms, texts in ((CAUSES, list(dict.fromkeys([*near, *others]))), (CONSEQUENCES, near)):
        for symptom in symptoms:
            for text in texts:
                if re.search(symptom.pattern, text):
                    return error or text, symptom
    return error, None


def explain(lines: Sequence[str]) -> str:
    """Return the first error in the log lines with its cause, fix and page, "" if the log has no error."""
    error, symptom = diagnose(lines)
    if not error:
        return ""
    shown = error if len(error) <= _SHOWN else f"{error[:_SHOWN]}..."
    return shown + (symptom.advice() if symptom else f" (unknown cause; see {PAGES[LOG]})")


def states(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each wrong state of the nodes, with its cause, fix and page. Nodes are those of status.py."""
    known, lines = {node["name"]: node for node in nodes}, []
    for finding in wrong_states(nodes):
        advice, node = finding.check.advice(), known[finding.place]
        own = causes.filled(advice, node["user"], node["address"]) if finding.check in causes.CAUSES else advice
        lines.append(f"problem: {finding.found}{own}")
    return lines


def wrong_states(nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the findings of STATES and of the causes of no access. Their text names the node or the API."""
    heads = [node for node in nodes if node["head"] and node["status"].get("api")]
    found = [
        Finding(STATES[state], node["name"], text) for node in heads for state, text in _api(node["status"]["api"])
    ]
    healthy = any(node["status"]["api"]["healthy"] for node in heads)
    for node in nodes:
        if node["unreachable"]:
            cause = causes.find(node["unreachable"]) or STATES["node-unreachable"]
            found.append(Finding(cause, node["name"], f"{node['name']} cannot be read"))
        else:
            found += [
                Finding(STATES[state], node["name"], f"{node['name']} {text}")
                for state, text in _node(node["status"], healthy)
            ]
    return found


def _api(api: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return (state, description) of a server that does not answer."""
    reason = api["reason"]
    if not api["healthy"]:
        if reason:
            yield "tls-untrusted", f"the certificate at {api['url']} is not trusted"
    elif api["answers"] is False:
        if re.search(r"HTTP (?:Error )?40[13]\b", reason):
            yield "key-refused", f"{api['url']} rejects the API key"
        elif re.match(r"port \d+ is used by ", reason):
            yield "port-taken", f"another process listens at {api['url']}"
        elif reason.startswith(("no answer", "the answer is incomplete")):
            yield "engine-silent", f"{api['url']}/health returns 200, but no token arrives"


def _node(status: Mapping[str, Any], healthy: bool) -> Iterator[tuple[str, str]]:
    """Return (state, description) of a node. ``healthy``: whether the cluster's API is healthy."""
    services = [service for service in status["services"] if service["load"] != "not-found"]
    yield from _services(services, status["uptime"], status.get("memory_guard") or {"active": True, "stop": {}})
    running = any(service["pid"] for service in services)
    for name in _down(status["links"]):
        yield "link-down", f"has no link at {name}"
    available = status["available"] / status["total"]
    if healthy and running and not status["ranks"]:
        yield "rank-missing", "has no rank"
    if available < _EXHAUSTED:
        yield "memory-exhausted", "has almost no available memory"
    elif available < _HELD and not running and not status["ranks"]:
        yield "memory-held", "serves nothing, but less than half of its memory is available"


def _services(
    services: Sequence[Mapping[str, Any]], uptime: float, guard: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Return (state, description) of a node's services and of the guard of its memory."""
    if guard["stop"]:
        yield "memory-floor", f"has its services stopped: {guard['stop']['reason']}"
    elif guard.get("done"):
        yield "memory-short", guard["done"]
    if not guard["active"]:
        yield "memory-guard-down", "does not run gb10-memory-guard"
    for service in services:
        if service["pid"] or not guard["stop"]:
            yield from _service(service, uptime)


def _down(links: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the interfaces without carrier or with an RDMA port that is not ACTIVE."""
    return [link["interface"] for link in links if not link["carrier"] or (link["hca"] and link["state"] != "ACTIVE")]


def _service(service: Mapping[str, Any], uptime: float) -> Iterator[tuple[str, str]]:
    """Return (state, description) of a service."""
    name, active = service["unit"].removesuffix(".service"), service["active"]
    gate = f": {service['gate']}" if service.get("gate") else ""
    recent = not service["pid"] or uptime - service["started"] < _RECENT
    if active == "failed":
        yield "service-stopped", f"has {name} failed after {service['restarts']} restarts{gate}"
    elif service["restarts"] >= _RESTARTS and active in ("active", "activating") and recent:
        yield "service-restarts", f"restarts {name} repeatedly ({service['restarts']} times)"
    elif service["enabled"] and active == "inactive":
        yield "service-down", f"has {name} enabled, but it is inactive"
    if gate and active in ("active", "activating"):
        yield "gate-closed", f"does not start {name} yet{gate}"
