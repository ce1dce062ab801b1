# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the cause and fix of a failed start or a wrong state (docs/troubleshooting.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import LOG, PAGES, Check, Finding
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release
from ansible_collections.gb10.cluster.plugins.module_utils.health import failures
from ansible_collections.gb10.cluster.plugins.module_utils.health.failures import Failure, Line
from ansible_collections.gb10.cluster.plugins.module_utils.health.kinds import KINDS
from ansible_collections.gb10.cluster.plugins.module_utils.health.schema import ReadNode, StatusNode
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES

#: The line with vLLM's release. Source: vLLM 0.33, v1/engine/core.py.
_ENGINE = re.compile(r"LLM engine \(v(\d[\w.+]{0,40})\)")
#: Maximum characters of an error in a message, and of one that followed from it.
_SHOWN, _SHOWN_LATER = 500, 120
#: The consequences that are shown after a cause.
_LATER = [each for each in CONSEQUENCES if each.id in ("gloo-timeout", "nccl-timeout", "peer-closed", "rank-died")]
#: What a kernel prints before an exception that names no reason.
_ASSERTIONS = [each for each in CAUSES if each.id == "positions-exceeded"]
#: Restarts of a service that count as repeated, and the seconds within which the last one happened.
_RESTARTS, _RECENT = 3, 600
#: The state of a node, and its text, that is normal while the model rests. Ray's node goes on.
_AT_REST = ("service-down", "has gb10-vllm enabled, but it is inactive")
#: Available parts of the memory below which it is exhausted, or held although nothing is served.
_EXHAUSTED, _HELD = 0.02, 0.5


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a failed start. ``error``: the first error, "" without one; ``symptom``: None if it is unknown.

    ``place``: of an unknown error, "" without one. ``later``: an error that followed from it, "" without one.
    ``release``: vLLM's, "" if the log does not name it.
    """

    error: str
    symptom: Check[str] | None = None
    place: str = ""
    later: str = ""
    release: str = ""


def diagnose(lines: Sequence[str]) -> Diagnosis:
    """Return the cause in the log lines of a start.

    A primary failure, known or not, precedes those that follow from others, such as a closed connection.
    """
    log = failures.read(lines)
    named = [found[1] for line in log if (found := _ENGINE.search(line.text))]
    return replace(_cause(log), release=named[-1] if named else "")


def _cause(log: Sequence[Line]) -> Diagnosis:
    found = failures.failures(log)
    own = [failure for failure in found if not failure.echo]
    following: list[tuple[Failure, Check[str]]] = []
    for failure in own:
        symptom, text = _first(CAUSES, failure)
        if symptom and symptom.id == "gpu-assert":
            # The kernel printed its assertion before the exception.
            symptom = _said_before(log, failure, everyone=False, symptoms=_ASSERTIONS) or symptom
        consequence, _text = _first(CONSEQUENCES, failure)
        if not symptom:
            # Another process may have logged why a call failed. An unknown error has only its own messages.
            symptom = _said_before(log, failure, everyone=consequence is not None)
        if consequence and not symptom:
            following.append((failure, consequence))
        # A process that fails because of another one may fail again at its end.
        elif symptom or not any(failure.process and failure.process == each.process for each, _symptom in following):
            return _diagnosis(log, failure, symptom, text)
    if following:
        failure, consequence = following[0]
        return Diagnosis(failure.shown(), consequence)
    return _without_exception(log, found)


def _first(symptoms: Sequence[Check[str]], failure: Failure) -> tuple[Check[str] | None, str]:
    """Return the symptom of the innermost error that has one, with that error; (None, "") without one."""
    for text in failure.texts():
        for symptom in symptoms:
            if re.search(symptom.pattern, text):
                return symptom, text
    return None, ""


def _said_before(
    log: Sequence[Line], failure: Failure, everyone: bool, symptoms: Sequence[Check[str]] = CAUSES
) -> Check[str] | None:
    before = [
        line.text
        for line in log[: failure.index]
        if line.text
        and not line.harmless
        and (everyone or line.process in ("", failure.process))
        # A primary failure. Ray's text about a lost rank also lists possible reasons for its death.
        and not failures.is_failure(line.text)
    ]
    return _of_texts(symptoms, before)


def _of_texts(symptoms: Sequence[Check[str]], texts: Sequence[str]) -> Check[str] | None:
    return next((each for each in symptoms if any(re.search(each.pattern, text) for text in texts)), None)


def _diagnosis(log: Sequence[Line], failure: Failure, symptom: Check[str] | None, text: str) -> Diagnosis:
    later = (line.text for line in log[failure.index + 1 :] if not line.harmless and line.text not in failure.texts())
    followed = next((line for line in later if _of_texts(_LATER, [line])), "")
    place = next((error.place for error in failure.chain if error.place), "")
    return Diagnosis(failure.shown(text), symptom, place, followed)


def _without_exception(log: Sequence[Line], found: Sequence[Failure]) -> Diagnosis:
    """Return the cause of a log whose exceptions only report another one, or which has none."""
    said = [line.text for line in log if line.text and not line.harmless]
    if found:
        symptom = _of_texts(CAUSES, said) or _of_texts(CONSEQUENCES, [found[0].shown(), *found[0].details])
        return Diagnosis(found[0].shown(), symptom)
    if end := failures.killed(log):
        return Diagnosis(end, _of_texts(CAUSES, said) or _of_texts(CONSEQUENCES, [end]))
    if failures.failed(log):
        for symptom in (*CAUSES, *CONSEQUENCES):
            if text := next((text for text in said if re.search(symptom.pattern, text)), ""):
                return Diagnosis(text, symptom)
    return Diagnosis("")


def explain(lines: Sequence[str]) -> str:
    """Return the first error in the log lines with its cause, fix and page, "" if the log has no error."""
    found = diagnose(lines)
    if not found.error:
        return ""
    text = _short(found.error)
    if found.later:
        text += f" (followed by: {_short(found.later, _SHOWN_LATER)})"
    if found.symptom:
        return text + _elsewhere(found.symptom, found.release) + found.symptom.advice()
    kind = next((each for each in KINDS if each.matches(found.place, found.error)), None)
    place = f", at {found.place}" if found.place else ""
    next_step = f": {kind.name}; next step: {kind.fix}" if kind else ""
    return f"{text} (unknown cause{place}{next_step}; see {PAGES[LOG]})"


def _elsewhere(symptom: Check[str], named: str) -> str:
    """Return a doubt for people, "" without one: no report of the symptom is about the release of the log."""
    first, here, last = (release(each) for each in (symptom.releases[0], named, symptom.releases[1]))
    if here and ((first and here < first) or (last and here[:2] > last[:2])):
        return f" (known of {symptom.bounds()}, and this is {named}: another cause is possible)"
    return ""


def _short(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def states(nodes: Sequence[StatusNode]) -> list[str]:
    """Return a line for each wrong state of the nodes, with its cause, fix and page."""
    clients, lines = {node.name: node.client for node in nodes}, []
    for finding in wrong_states(nodes):
        advice, client = finding.check.advice(), clients[finding.place]
        own = causes.filled(advice, client.user, client.address) if finding.check in causes.CAUSES else advice
        lines.append(f"problem: {finding.found}{own}")
    return lines


def wrong_states(nodes: Sequence[ReadNode]) -> list[Finding]:
    """Return the findings of STATES and of the causes of no access. Their text names the node or the API."""
    heads = [node for node in nodes if node.head and node.facts.get("api")]
    found = [Finding(STATES[state], node.name, text) for node in heads for state, text in _api(node.facts["api"])]
    healthy = any(node.facts["api"]["healthy"] for node in heads)
    rests = any(node.facts.get("rests") is not None for node in nodes)
    for node in nodes:
        if node.unreachable:
            cause = causes.find(node.unreachable) or STATES["node-unreachable"]
            found.append(Finding(cause, node.name, f"{node.name} cannot be read"))
        else:
            wrong = (each for each in _node(node.facts, healthy) if not (rests and each == _AT_REST))
            found += [Finding(STATES[state], node.name, f"{node.name} {text}") for state, text in wrong]
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
