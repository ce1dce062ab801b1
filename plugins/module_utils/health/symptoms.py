# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the cause and fix of a failed start or a wrong state (docs/troubleshooting.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.health import log as serve_log
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptom import PAGE, Symptom
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_access import ACCESS
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES

#: Maximum characters of an error in a message.
_SHOWN = 500
#: Restarts of a service that count as repeated, and the seconds within which the last one happened.
_RESTARTS, _RECENT = 3, 600
#: Available parts of the memory below which it is exhausted, or held although nothing is served.
_EXHAUSTED, _HELD = 0.02, 0.5


@dataclass(frozen=True)
class Diagnosis:
    """The first error of a failed start, and its symptom, None if unknown."""

    error: str
    symptom: Symptom | None

    def text(self) -> str:
        """Return the error with its cause, fix and page."""
        error = self.error if len(self.error) <= _SHOWN else f"{self.error[:_SHOWN]}..."
        return error + (self.symptom.advice() if self.symptom else f" (unknown cause; see {PAGE})")


def diagnose(lines: Sequence[str]) -> Diagnosis | None:
    """Return the first error in the log lines of a start, with its symptom if known. None if the log has no error."""
    error, details, others = serve_log.evidence(lines)
    near = [error, *details] if error else others
    for symptoms, texts in ((CAUSES, list(dict.fromkeys([*near, *others]))), (CONSEQUENCES, near)):
        for symptom in symptoms:
            for text in texts:
                if re.search(symptom.pattern, text):
                    return Diagnosis(error or text, symptom)
    return Diagnosis(error, None) if error else None


def explain(lines: Sequence[str]) -> str:
    """Return the first error in the log lines with its cause, fix and page, "" if the log has no error."""
    diagnosis = diagnose(lines)
    return diagnosis.text() if diagnosis else ""


def advice(state: str) -> str:
    """Return cause, fix and page of a state, for the end of a message."""
    return (STATES.get(state) or ACCESS[state]).advice()


def states(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each wrong state of the nodes, with its cause, fix and page. Nodes are those of status.py."""
    lines = []
    for state, text, node in _wrong(nodes):
        own = causes.filled(advice(state), node["user"], node["address"]) if state in ACCESS else advice(state)
        lines.append(f"problem: {text}{own}")
    return lines


def wrong_states(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (ID in STATES or ACCESS, description) of each wrong state of the nodes."""
    return [(state, text) for state, text, _node in _wrong(nodes)]


def _wrong(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (ID, description, node) of each wrong state."""
    heads = [node for node in nodes if node["head"] and node["status"].get("api")]
    for node in heads:
        yield from ((state, text, node) for state, text in _api(node["status"]["api"]))
    healthy = any(node["status"]["api"]["healthy"] for node in heads)
    for node in nodes:
        yield from ((state, f"{node['name']} {text}", node) for state, text in _node(node, healthy))


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


def _node(node: Mapping[str, Any], healthy: bool) -> Iterator[tuple[str, str]]:
    """Return (state, description) of a node. ``healthy``: whether the cluster's API is healthy."""
    if node["unreachable"]:
        cause = causes.find(node["unreachable"])
        yield cause.id if cause else "node-unreachable", "cannot be read"
        return
    status = node["status"]
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
