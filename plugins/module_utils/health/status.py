# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Format a cluster's status output, and parse a node's metrics and log for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, spans
from ansible_collections.gb10.cluster.plugins.module_utils.health import example, symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.health.schema import StatusNode
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides, start
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

GIB = 1 << 30
#: The kind of a pooling model, as a suffix of its name.
_KINDS = {"embed": " (embeddings)", "rerank": " (reranker)"}
#: Maximum characters of an image's name in the output.
_MOST_IMAGE = 300
#: Below this share of accepted tokens, the status warns about a draft: users measured -54 % of speed at 0 to 1.4 %
#: (docs/rules.md). The share, and the number of tokens that it needs, are estimates.
_FEW_ACCEPTED, _DRAFTED = 0.1, 1000
#: systemd's messages about a start, and about the order to stop, which may follow the server's own by milliseconds.
STARTING = re.compile(r"^Start(?:ed|ing) \S+\.service")
STOPPING = re.compile(
    r"Stopping \S+\.service|\(APIServer pid=\d+\) INFO .{1,80} \[shutdown\] API server: shutdown triggered"
)


def ranks(processes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranks among {pid, name, bytes} of parse.is_rank(): the workers, or the engine itself without them."""
    for prefix in node_parse.RANKS:
        if found := [dict(process) for process in processes if process["name"].startswith(prefix)]:
            return sorted(found, key=lambda process: process["pid"])
    return []


def last_error(entries: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return (time, text) of the explained root cause in the latest start that has one, or (0.0, ""). Entries are in
    order.

    The time is that of the start's last entry, when it ended. Messages of a service after a request to stop are not a
    cause: vLLM's engine then reports that it died.
    """
    starts: list[list[tuple[float, str]]] = [[]]
    stopping = False
    for entry in entries:
        if STARTING.match(entry[1]):
            starts.append([])
            stopping = False
        stopping = stopping or STOPPING.match(entry[1]) is not None
        if not stopping:
            starts[-1].append(entry)
    for each in reversed(starts):
        if cause := symptoms.explain([text for _when, text in each]):
            return each[-1][0], cause
    return 0.0, ""


def lines(nodes: Sequence[StatusNode], wanted: str) -> list[str]:
    """Return the lines of the status output. ``wanted``: the inventory's model, in the form that vLLM receives."""
    result = _api(nodes, wanted)
    stopped = _stopped(nodes)
    result += ["stopped by stop.yml; site.yml starts it again"] * stopped
    result += [_lock(node.facts["lock"]) for node in nodes if node.head and node.facts.get("lock")]
    result += _start(nodes)
    said = watchdog({node.name: node.facts["watchdog"] for node in nodes if node.facts.get("watchdog")})
    result += [f"watchdog: {said}"] if said and not stopped else []
    width = max([4, *(len(node.name) for node in nodes)])
    for node in nodes:
        result += [f"{name:{width}}  {text}" for name, text in zip((node.name, *[""] * 2), _node(node), strict=False)]
    result += _records(nodes)
    result += _images(nodes)
    result += [*_updates(nodes), *_reboots(nodes)]
    result += [
        f"flight record on {node.name}: {text}" for node in nodes for text in node.facts.get("flight_records", ())
    ]
    return [*result, *symptoms.states(nodes), _last_error(nodes)]


def _start(nodes: Sequence[StatusNode]) -> list[str]:
    """Return how long the parts of the last start took, as far as the head's watchdog read it."""
    texts = [start.summary(node.facts.get("watchdog", {}).get("start", {})) for node in nodes if node.head]
    return [f"last start: {text}" for text in texts if text]


def _stopped(nodes: Sequence[StatusNode]) -> bool:
    """Whether stop.yml ended the services of all nodes: they exist, none runs or failed, and none starts at boot."""
    states = [
        service["active"] == "inactive" and not service["enabled"]
        for node in nodes
        for service in node.facts.get("services", ())
        if service["load"] != "not-found"
    ]
    return bool(states) and all(states) and not any(node.unreachable for node in nodes)


def _lock(lock: Mapping[str, Any]) -> str:
    age = spans.span(lock["age"])
    if lock.get("ended"):
        return f"lock of a run that has ended, {age} old: {lock['text']}. The next run replaces it"
    return f"locked: {lock['text']}, for {age}"


def _last_error(nodes: Sequence[StatusNode]) -> str:
    errors = [(node.facts["error"]["age"], node.name, node.facts["error"]) for node in nodes if node.facts.get("error")]
    if not errors:
        unread = " on the nodes that could be read" if any(node.unreachable for node in nodes) else ""
        return f"last error: none of this launch since boot{unread}"
    _age, name, error = min(errors, key=lambda entry: entry[0])
    return f"last error: {spans.span(error['age'])} ago, {error['unit']} on {name}: {error['text']}"


def _records(nodes: Sequence[StatusNode]) -> list[str]:
    """Return the line about the current launch record, by node if the nodes disagree."""
    found = {node.name: node.facts.get("record", "")[: record.SHOWN] for node in nodes if not node.unreachable}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {shown or 'none'}" for name, shown in found.items())
        return [f"warning: the nodes have different launch records: {listed}. Fix: run site.yml"]
    return [f"launch record: {shown}" for shown in set(found.values()) if shown]


def _images(nodes: Sequence[StatusNode]) -> list[str]:
    found = dict.fromkeys(node.facts.get("image", "") for node in nodes if not node.unreachable)
    return [f"image: {shown}" for shown in found if shown]


def image(recorded: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the image in the overrides of a node, as NAME (ID), "" without containers."""
    addition = recorded.get(overrides.IMAGE_ROLE, {})
    name, files = str(addition.get("runtime", "")), addition.get("files")
    image_id = str(files.get(name, "")) if isinstance(files, Mapping) else ""
    return f"{name[:_MOST_IMAGE]} (ID {image_id[:12]})" if image_id else ""


def _updates(nodes: Sequence[StatusNode]) -> Iterator[str]:
    """Yield the system of all nodes, or of each if they differ, and its faults."""
    found = {node.name: node.facts["updates"] for node in nodes if node.facts.get("updates")}
    texts = {name: "; ".join(each["lines"]) for name, each in found.items()}
    alike = len(set(texts.values())) == 1
    yield from (f"system: {text}" for text in dict.fromkeys(texts.values()) if alike)
    yield from (f"system of {name}: {text}" for name, text in texts.items() if not alike)
    for name, each in found.items():
        yield from (f"warning: {name}: {text}" for text in each["warnings"])
        if each["holder"]:
            yield f"apt on {name}: locked by {each['holder']}"
    yield from _unlike(found)


def _unlike(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the differences between the nodes with DGX OS: other systems have different kernels."""
    known = {name: each["compared"] for name, each in found.items() if "DGX OS" in each["compared"]}
    for attribute in dict.fromkeys(key for each in known.values() for key in each):
        values = {name: each[attribute] for name, each in known.items() if attribute in each}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{value} on {name}" for name, value in values.items())
            yield f"warning: the nodes differ in {attribute}: {listed}. Fix: run playbooks/os_update.yml"


def _reboots(nodes: Sequence[StatusNode]) -> list[str]:
    pending = {node.name: node.facts["reboot"] for node in nodes if node.facts.get("reboot", {}).get("required")}
    return [f"warning: {name}: {packages.pending_reboot(found['packages'])}" for name, found in pending.items()]


def watchdog(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the state of the watchdog on the head, and the nodes without a running one.

    ``found``: by node, {} without it.
    """
    down = (
        [f"DOWN on {', '.join(name for name in found if not found[name]['active'])}"]
        if not all(each["active"] for each in found.values())
        else []
    )
    head = next((each for each in found.values() if each["active"] and each.get("head")), None)
    if head:
        state = "armed" if head.get("armed") else "not armed before the first answer"
        alarm = f"last alarm {head['last_alarm']}" if head.get("last_alarm") else "no alarm"
        down = [f"{head['mode']}, {state}, {alarm}, {_restarts(head.get('restarts', 0))} in the last hour", *down]
    return "; ".join(down)


def _api(nodes: Sequence[StatusNode], wanted: str) -> list[str]:
    head = next((node for node in nodes if node.head), None)
    if head is None or not (api := head.facts.get("api")):
        return [
            f"model: unknown, because {head.name if head else 'the head'} cannot be read",
            f"the inventory specifies {wanted}",
        ]
    if (rests := head.facts.get("rests")) is not None:
        return [
            f"the model rests for {spans.span(rests)}: the next request to the gateway starts it, as does site.yml",
            f"the inventory specifies {wanted}",
        ]
    if not api["healthy"]:
        untrusted = f", TLS error: {api['reason']}" if api["reason"] else ""
        return [f"model: none is served at {head.client.endpoint}{untrusted}", f"the inventory specifies {wanted}"]
    name, kind = api["model"] or "a model", _KINDS.get(api["kind"], "")
    result = [f"{name}{kind} DOES NOT ANSWER at {head.client.endpoint}: {api['reason']}"]
    if api["answers"]:
        result = [
            (
                f"{name}{kind} answers in {api['answered_after'] * 1000:.0f} ms at "
                f"{head.client.endpoint}{_since(head.facts)}"
            )
        ]
        result += example.client(head.client, name, api["kind"])
    result += [activity(api), *_draft(api), f"model: {api['root'] or 'unknown'}"]
    if api["root"] and api["root"] != wanted:
        result.append(f"the inventory specifies {wanted}: the next site.yml run switches to it")
    return result


def _since(status: Mapping[str, Any]) -> str:
    """Return since when the server runs as the end of a sentence."""
    serving = next((each for each in status["services"] if each["unit"] == paths.VLLM_UNIT and each["pid"]), None)
    return f", up for {spans.span(max(0.0, status['uptime'] - serving['started']))}" if serving else ""


def activity(api: Mapping[str, Any]) -> str:
    pooling = api["kind"] in _KINDS
    measured = api["requests_per_second"] if pooling else api["tokens_per_second"]
    speed = f"{'unknown' if measured is None else f'{measured:.1f}'} {'requests/s' if pooling else 'tokens/s'}"
    running, waiting = ("unknown" if api[name] is None else int(api[name]) for name in ("running", "waiting"))
    rate = api["prefix_cache_hit_rate"]
    return (
        f"{speed}, {running} requests running, {waiting} waiting, prefix cache "
        f"{'unused' if rate is None else f'hit rate {rate:.0%}'}"
    )


def _draft(api: Mapping[str, Any]) -> list[str]:
    """Return the line of speculative decoding, [] without drafted tokens."""
    drafted, accepted = api["drafted"], api["accepted"]
    if not drafted:
        return []
    line = f"draft: {accepted / drafted:.0%} of {int(drafted)} tokens accepted"
    few = drafted >= _DRAFTED and accepted < _FEW_ACCEPTED * drafted
    return [
        f"{line}; warning: so few make answers slower. Fix: leave out --speculative-config, or use another draft"
        if few
        else line
    ]


def _node(node: StatusNode) -> list[str]:
    if node.unreachable:
        return [f"CANNOT BE READ: {' '.join(node.unreachable.split())}"]
    status = node.facts
    services = [_service(service, status["uptime"]) for service in status["services"] if service["load"] != "not-found"]
    lowest = guard.lowest((status.get("memory_guard") or {}).get("starts") or ())
    memory = f"{status['available'] / GIB:.1f} of {status['total'] / GIB:.1f} GiB available{lowest}"
    processes = ", ".join(f"pid {rank['pid']}: {rank['bytes'] / GIB:.1f} GiB" for rank in status["ranks"])
    driver = f"driver {status['driver']}" if status["driver"] else "no driver"
    return [
        ", ".join(services) or "no service",
        f"{f'rank {processes}' if processes else 'no rank'}; {memory}",
        "; ".join([driver + _gpu(status.get("gpu_state") or {}), *_links(status["links"])]),
    ]


def _gpu(state: Mapping[str, Any]) -> str:
    """Return the GPU's temperature, clock and limits as the end of a sentence."""
    heat, clock, limit = (state.get(name) for name in ("temperature_c", "clock_mhz", "limit_mhz"))
    parts = [
        "" if heat is None else f"GPU {heat:.0f} \N{DEGREE SIGN}C",
        "" if clock is None else f"{clock:.0f} MHz",
        f"limit {limit} MHz" if limit else "",
        *(state.get("slowed") or ()),
    ]
    return "".join(f", {part}" for part in parts if part)


def _links(links: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each link, or all of them as one if they are equal and up."""
    kinds = {(link["carrier"], link["speed"], bool(link["hca"]), link["state"]) for link in links}
    if len(links) < 2 or len(kinds) > 1 or not links[0]["carrier"]:
        return [_link(link) for link in links]
    rdma = f", RDMA {links[0]['state']}" if links[0]["hca"] else ""
    return [f"{len(links)} links {_speed(links[0])}{rdma}"]


def _speed(link: Mapping[str, Any]) -> str:
    return f"{link['speed'] / 1000:g} Gb/s" if link["speed"] else "up"


def _link(link: Mapping[str, Any]) -> str:
    state = _speed(link) if link["carrier"] else "NO CARRIER"
    return f"{link['interface']} {state}" + (f", {link['hca']} {link['state']}" if link["hca"] else "")


def _service(service: Mapping[str, Any], uptime: float) -> str:
    name = service["unit"].removesuffix(".service")
    state = (
        service["active"]
        if service["active"] == service["sub"] or service["sub"] == "running"
        else f"{service['active']} ({service['sub']})"
    )
    since = f" for {spans.span(max(0.0, uptime - service['started']))}" if service["pid"] else ""
    count = service["restarts"]
    notes = [_restarts(count)] * bool(count) + ["not started at boot"] * (not service["enabled"])
    return f"{name} {state}{since}" + (f" ({', '.join(notes)})" if notes else "")


def _restarts(count: int) -> str:
    return f"{count or 'no'} restart{'s' if count > 1 else ''}"
