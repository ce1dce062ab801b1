# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the status of a node and its server. Changes nothing; sends one request for one token, vector or score."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import io_guard as api_io_guard
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file, io_json, io_local, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_local import Secret
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, metrics
from ansible_collections.gb10.cluster.plugins.module_utils.health import status as health_status
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES
from ansible_collections.gb10.cluster.plugins.module_utils.launch import gates, io_overrides
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard, io_guard, io_reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_packages
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state as os_update_io_state
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan

#: Lines of the log of a service since boot.
_LOG_LINES = 2000
#: Maximum characters of the closed gates of a service.
_MOST_GATE = 2000
#: Maximum characters of the reason of an alarm.
_MOST_ALARM = 500
_SECONDS = 5
#: A rate, and the counter of metrics.read() that it is measured with.
_RATES = {"tokens_per_second": "generated", "requests_per_second": "finished"}


def node(run: Run) -> dict[str, Any]:
    """Return {services, ranks, available, total, uptime, driver, gpu_state, links, error, lock, record, watchdog,
    memory_guard, reboot} of this node: sizes in bytes, times in seconds since boot.

    ``gate`` of a service is the text of its closed gates.

    ``driver`` is the GPU's, "" without one; ``gpu_state`` is node_text.gpu_state.
    ``links`` are {interface, carrier, speed, hca, state} of the fabric's
    interfaces, with Mb/s and the state of the RDMA port. ``error`` is {unit, text, age} of the last error in the
    journal since boot and since the launch of the current record answered, or {}. ``lock`` is {text, age, held} of
    the run that holds the cluster's lock, or {}. ``record`` is the ID of the current launch record, or "".
    ``image`` is the image of the ranks and its ID, "" without containers.
    ``watchdog`` is {active, mode, head, ...}, the last status of the watchdog, or {} without one. ``memory_guard`` is
    {active, starts, stop, done} with the last starts of guard.entry(), the present one included, {reason, text} of the
    guard's stop or {}, and its actions without a stop; {} without the guard. ``reboot`` is {required, packages}.
    ``updates`` is {lines, warnings, holder, compared}: the system as text, its faults, the process with dpkg's lock,
    and the values that must be equal on all nodes with DGX OS, by name. ``rests``: for how many seconds the model
    rests, None if it does not; only the head knows. Raises ValueError, OSError.
    """
    services = [node_io_facts.service(run, unit) for unit in paths.UNITS]
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    since = now - (time.time() - io_record.current_since(io_record.FOLDER))
    errors: list[dict[str, Any]] = []
    for unit, service in zip(paths.UNITS, services, strict=True):
        entries = io_client.journal(run, io_client.of_unit(unit), _LOG_LINES)
        service["gate"] = gates.closed([text for _when, text in entries])[:_MOST_GATE]
        when, text = health_status.last_error([entry for entry in entries if entry[0] >= since])
        errors += [{"unit": unit, "text": text, "age": max(0.0, round(now - when, 1))}] if text else []
    meminfo = io_file.read("/proc/meminfo")
    return {
        "services": services,
        "ranks": _ranks(any(service["load"] != "not-found" for service in services)),
        "available": node_parse.available_memory(meminfo),
        "total": node_parse.total_memory(meminfo),
        "uptime": now,
        "driver": node_io_facts.gpu(run)["driver_version"] or "",
        "gpu_state": node_io_facts.gpu_state(run),
        "links": _links(run),
        "error": min(errors, key=lambda error: error["age"], default={}),
        "lock": _lock(),
        "record": io_record.current_id(io_record.FOLDER),
        "image": health_status.image(io_overrides.recorded_additions()),
        "watchdog": _watchdog(run),
        "memory_guard": _memory_guard(run),
        "reboot": io_packages.reboot(),
        "rests": _rests(),
        "updates": _updates(run),
    }


def _ranks(ours: bool) -> list[dict[str, Any]]:
    """Return {pid, name, bytes} of the ranks. ``ours``: see parse.is_rank()."""
    return health_status.ranks(
        [
            process
            for process in io_reclaim.processes()
            if node_parse.is_rank(process["name"], io_file.read(f"/proc/{process['pid']}/cgroup"), ours)
        ]
    )


def _updates(run: Run) -> dict[str, Any]:
    state = os_update_io_state.read(run, simulate=False)
    kernel = state.next_kernel
    compared = {
        "DGX OS": state.level.stamp,
        "kernel": state.running,
        "kernel of the next boot": kernel and kernel.release,
    }
    return {
        "lines": os_update_plan.about(state),
        "warnings": os_update_plan.warnings(state),
        "holder": state.holder,
        "compared": {name: value for name, value in compared.items() if value},
    }


def _links(run: Run) -> list[dict[str, Any]]:
    facts = fabric_io_facts.read(run)
    return [
        {
            "interface": name,
            "state": facts["rdma"].get(link["hca"], {}).get("state", ""),
            **{key: link[key] for key in ("carrier", "speed", "hca")},
        }
        for name, link in facts["interfaces"].items()
        if any(owner["file"] == topology.NETPLAN_FILE for owner in link["owners"])
    ]


def _watchdog(run: Run) -> dict[str, Any]:
    if not os.path.exists(paths.WATCHDOG_SETTINGS):
        return {}
    active = node_io_facts.service(run, paths.WATCHDOG_UNIT)["active"] == "active"
    try:
        status = io_json.json_file(paths.WATCHDOG_STATUS) or {}
    except OSError:
        status = {}
    if "last_alarm" in status:
        status["last_alarm"] = status["last_alarm"] or last_alarm(f"{paths.WATCHDOG_STATE}/evidence")
    return {**status, "active": active}


def last_alarm(folder: str) -> str:
    """Return time and reason of the newest evidence, "" without one: a watchdog knows only the alarms since its
    start."""
    try:
        newest = max(os.listdir(folder), default="")
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.strptime(newest, "%Y%m%dT%H%M%SZ"))
    except (OSError, ValueError):
        return ""
    try:
        alarm = io_json.json_file(os.path.join(folder, newest, "alarm.json")) or {}
    except (OSError, ValueError):
        alarm = {}
    return f"{when}: {str(alarm.get('reason', 'unknown'))[:_MOST_ALARM]}"


def _memory_guard(run: Run) -> dict[str, Any]:
    if not os.path.exists(f"{paths.UNIT_FOLDER}/{paths.MEMORY_GUARD_UNIT}"):
        return {}
    present, stop = (io_json.json_file(path) for path in (paths.MEMORY_GUARD_PRESENT, paths.MEMORY_GUARD_STOP))
    reason, starts = guard.reason(stop) if stop else "", io_guard.starts()
    return {
        "active": node_io_facts.service(run, paths.MEMORY_GUARD_UNIT)["active"] == "active",
        "starts": [*starts, *([present] if present else [])],
        "done": guard.shown(starts, time.time()),
        "stop": {
            "reason": reason,
            "text": f"the memory guard stopped the services: {reason}{STATES['memory-floor'].advice()}",
        }
        if stop
        else {},
    }


def _rests() -> float | None:
    try:
        return max(0.0, time.time() - os.stat(paths.RESTS).st_mtime)
    except FileNotFoundError:
        return None


def _lock() -> dict[str, Any]:
    try:
        held = io_lock.look(run_lock_plan.FOLDER)
    except (ValueError, OSError) as error:
        return {"text": f"{run_lock_plan.FOLDER}/{run_lock_plan.FILE} cannot be read: {error}", "age": 0.0}
    if not held:
        return {}
    return {"text": run_lock_plan.described(held), "age": float(held["age"]), "held": held}


def api(server: Server, secret: Secret, seconds: float, timeout: float) -> dict[str, Any]:
    """Return {url, healthy, answers, answered_after, reason, model, root, tokens_per_second, running, waiting,
    prefix_cache_hit_rate, drafted, accepted, context, kind, requests_per_second} of a server. The rate is a fraction
    since the server started, as are the tokens of a draft; ``context`` is the maximum number of tokens of a request.

    It measures for ``seconds``, then requests one token, vector or score with a timeout of ``timeout``. Unknown values
    are None or "". The server receives the key only if it belongs to the key's unit.
    """
    healthy, reason = io_client.health(server)
    facts: dict[str, Any] = {
        "url": server.url,
        "healthy": healthy,
        "reason": reason,
        **dict.fromkeys(("model", "root", "kind"), ""),
        **dict.fromkeys(("drafted", "accepted"), 0.0),
        **dict.fromkeys(("answers", "answered_after", "running", "waiting", "context", "prefix_cache_hit_rate")),
        **dict.fromkeys(_RATES),
    }
    if not healthy:
        return facts
    first, begin = counters(server), time.monotonic()
    time.sleep(seconds)
    second, elapsed = counters(server), time.monotonic() - begin
    facts |= {"running": second.get("running"), "waiting": second.get("waiting")}
    facts |= {name: second.get(name, 0.0) for name in ("drafted", "accepted")}
    if second.get("cache_queries") and "cache_hits" in second:
        facts["prefix_cache_hit_rate"] = round(second["cache_hits"] / second["cache_queries"], 3)
    for rate, counter in _RATES.items():
        if counter in first and counter in second:
            # A server that restarted meanwhile counts from 0.
            facts[rate] = round(max(0.0, second[counter] - first[counter]) / elapsed, 1)
    try:
        models = bounded_json.load(_get(server, "/v1/models", secret), io_client.MOST)["data"]
        facts |= {"model": str(models[0]["id"]), "root": str(models[0].get("root") or "")}
        length = models[0].get("max_model_len")
        facts["context"] = length if isinstance(length, int) and length > 0 else None
        sent_at = time.monotonic()
        kind, status, reason = io_client.first_answer(server, facts["model"], timeout, secret)
        elapsed = time.monotonic() - sent_at
        if status == 200:
            facts |= {"answers": True, "answered_after": round(elapsed, 3), "kind": kind}
        else:
            shown = reason if status > 0 else f"no answer after {elapsed:.0f} s: {reason}"
            facts |= {"answers": False, "reason": shown}
    except io_local.SecretError as error:
        facts |= {"answers": False, "reason": str(error)}
    except (OSError, ValueError, LookupError, TypeError) as error:
        facts |= {"answers": False, "reason": f"{server.url}/v1/models lists no model: {error}"}
    return facts


def counters(server: Server) -> dict[str, float]:
    """Return the values of metrics.read() now, {} if the server does not return them."""
    try:
        return metrics.read(_get(server, "/metrics"))
    except OSError:
        return {}


def refuse_new(folder: str, seconds: float) -> None:
    """Let the API's guard refuse new requests for some seconds. ``folder``: vLLM's settings. Raises OSError."""
    io_file.write_file(os.path.join(folder, api_io_guard.DRAIN), f"{seconds:.0f}\n", 0o644)


def drained(server: Server, seconds: float, pause: float = 1) -> tuple[int, float]:
    """Return (open requests, seconds of the wait) as soon as none is open, at the latest after ``seconds``."""
    began = time.monotonic()
    while True:
        left = _open(server)
        waited = time.monotonic() - began
        if not left or waited >= seconds:
            return left, waited
        time.sleep(pause)


def _open(server: Server) -> int:
    """Return the open requests: the engine's, or the guard's, which knows a request before the engine does."""
    try:
        with server.open("/metrics", _SECONDS) as answer:
            found = metrics.read(io_client.body_of(answer))
            counted = answer.headers.get(api_io_guard.OPEN_REQUESTS, "")
    except OSError:
        return 0
    return max(int(found.get("running", 0) + found.get("waiting", 0)), int(counted) if counted.isdecimal() else 0)


def _get(server: Server, path: str, secret: Secret | None = None) -> str:
    """Return a response body. Raises OSError (HTTPError included), and StrangerError."""
    with server.open(path, _SECONDS, secret=secret) as answer:
        return io_client.body_of(answer)
