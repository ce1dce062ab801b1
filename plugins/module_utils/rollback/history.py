# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of the launch records, the difference between two of them, and the target of a rollback.

A node is ``{"name": str, "current": str, "records": [{id, time, parent, golden, choices, content, missing}],
"invalid": [str], "differs": [path]}``, from the module launch_record_info. A node may report anything, so verified()
leaves out other values than records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import ID, SHOWN, RecordError, checked

#: Fewer digits name a record only by accident.
_PREFIX = 4
_LONGEST = 300
#: Maximum records of a node that are read, and maximum reasons that are shown.
_MOST, _SHOWN_REASONS = 1000, 8
#: A launch file's digest repeats other values, so these differences come last.
_FILES = "files"
Node = Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """A record on the nodes that have it.

    ``missing``: "node: item" for each item that a rollback lacks. ``choices``: those of the ranks on all nodes.
    """

    record: Mapping[str, Any]
    without: Sequence[str]
    missing: Sequence[str]
    choices: Sequence[Mapping[str, Any]]


def verified(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes without records whose content is not that of their ID. ``invalid`` has the reasons."""
    return [_verified(node) for node in nodes]


def _verified(node: Node) -> Node:
    kept: list[Mapping[str, Any]] = []
    reasons = [_cut(reason) for reason in _listed(node, "invalid")]
    for record in _listed(node, "records")[:_MOST]:
        name = record.get("id") if isinstance(record, Mapping) else None
        try:
            if not isinstance(name, str) or not ID.fullmatch(name):
                raise RecordError("it has no ID")
            checked(record, name)
        except RecordError as error:
            reasons.append(f"the record {_cut(name)} is left out: {error}. Fix: examine this node, then run site.yml")
            continue
        kept.append({**record, "missing": [_cut(item) for item in _listed(record, "missing")]})
    more = len(reasons) - _SHOWN_REASONS
    return {
        "name": node["name"],
        "current": node["current"] if isinstance(node.get("current"), str) else "",
        "records": kept,
        "invalid": reasons[:_SHOWN_REASONS] + ([f"{more} more records are left out"] if more > 0 else []),
        "differs": [_cut(path) for path in _listed(node, "differs")],
    }


def _listed(node: Mapping[str, Any], key: str) -> list[Any]:
    found = node.get(key)
    return found if isinstance(found, list) else []


def known(nodes: Sequence[Node]) -> dict[str, Known]:
    """Return ID -> record, newest first. ``nodes``: from verified()."""
    by_node = {node["name"]: {record["id"]: record for record in node["records"]} for node in nodes}
    found = {name: _of_head(name, by_node) for records in by_node.values() for name in records}
    newest = sorted(found, key=lambda name: (found[name]["time"], name), reverse=True)
    return {
        name: Known(
            found[name],
            [node for node, records in by_node.items() if name not in records],
            [
                f"{node}: {item}"
                for node, records in by_node.items()
                if name in records
                for item in records[name]["missing"]
            ],
            [process for records in by_node.values() if name in records for process in records[name]["choices"]],
        )
        for name in newest
    }


def _of_head(name: str, by_node: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Mapping[str, Any]:
    """Return the head's copy of a record, or the first: the ID covers only the content, not the time and the parent."""
    copies = {node: records[name] for node, records in by_node.items() if name in records}
    first = next(iter(copies.values()))
    return copies.get(first["content"]["plan"]["head"]["name"], first)


def lines(reported: Sequence[Node]) -> list[str]:
    """Return the list of the records as text, newest first, then the nodes that disagree and the damaged records."""
    nodes = verified(reported)
    found = known(nodes)
    result = [line for name in found for line in _entry(name, found, nodes)] or [
        "no launch is recorded on this cluster"
    ]
    currents = {node["name"]: node["current"] for node in nodes}
    if len(set(currents.values())) > 1:
        shown = ", ".join(f"{name} {_short(current) or 'none'}" for name, current in currents.items())
        result.append(f"warning: the nodes have different current records: {shown}. Fix: run site.yml")
    return result + _warnings(nodes)


def _warnings(nodes: Sequence[Node]) -> list[str]:
    return [f"warning: {node['name']}: {reason}" for node in nodes for reason in node["invalid"]]


def _entry(name: str, found: Mapping[str, Known], nodes: Sequence[Node]) -> Iterator[str]:
    record, content = found[name].record, found[name].record["content"]
    mark = " (current)" if any(node["current"] == name for node in nodes) else ""
    model, stack = content["start"]["model"], content["plan"]["stack"]["name"]
    yield f"{_short(name)}  {record['time'] or 'time unknown'}  {model}, stack {stack}{mark}"
    former = found.get(record["parent"])
    changed = difference(former.record["content"], content) if former else []
    if former:
        more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield f"    since {_short(record['parent'])}: {'; '.join(changed[:3]) or 'nothing'}{more}"
    if record["golden"]:
        yield f"    {record['golden']}"
    if chosen := choices.summary(found[name].choices):
        yield f"    vLLM logged: {chosen}"
    if found[name].without:
        yield f"    warning: not on {', '.join(found[name].without)}"
    yield from (f"    needed for a rollback: {item}" for item in found[name].missing)
    if not found[name].without and not found[name].missing:
        yield "    on all nodes; a rollback needs no download"


def compared(nodes: Sequence[Node], old: str, new: str) -> list[str]:
    """Return the difference between two records as text. Raises RecordError if an ID names no record."""
    found = known(verified(nodes))
    first, second = find(found, old), find(found, new)
    changed = difference(found[first].record["content"], found[second].record["content"])
    return [f"from {_short(first)} to {_short(second)}:", *(f"  {line}" for line in changed or ["no difference"])]


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line for each value that differs between two contents: ``place: old -> new``, for a list its entries."""
    before, after = _flat(old), _flat(new)
    return [
        line
        for place in sorted(before.keys() | after.keys(), key=lambda place: (f" {_FILES} " in place, place))
        if before.get(place) != after.get(place)
        for line in _changes(place, before.get(place), after.get(place))
    ]


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return place -> value of the plan's and the nodes' values."""
    result: dict[str, Any] = {}

    def walk(place: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, inner in value.items():
                walk(f"{place} {key}".strip(), inner)
        else:
            result[place] = value

    walk("", content["plan"])
    walk("", content["nodes"])
    return result


def _changes(place: str, old: Any, new: Any) -> Iterator[str]:
    if f" {_FILES} /etc/" in place:
        yield f"{place.replace(f' {_FILES} ', ': ')}: {'changed' if old and new else 'added' if new else 'removed'}"
    elif isinstance(old, list) and isinstance(new, list):
        # As texts: an entry may be an object. A node's record may have any number of them.
        before, after = ({*map(str, entries)} for entries in (old, new))
        yield from (f"{place}: - {_cut(entry)}" for entry in old if str(entry) not in after)
        yield from (f"{place}: + {_cut(entry)}" for entry in new if str(entry) not in before)
        if sorted(map(str, old)) == sorted(map(str, new)):
            yield f"{place}: another order"
    else:
        yield f"{place}: {_cut('none' if old is None else old)} -> {_cut('none' if new is None else new)}"


def find(found: Mapping[str, Known], wanted: str) -> str:
    """Return the ID that begins with ``wanted``. Raises RecordError for none or several."""
    names = [name for name in found if name.startswith(wanted)] if len(wanted) >= _PREFIX else []
    if len(names) != 1:
        listed = ", ".join(map(_short, found)) or "none"
        number = "no record" if not names else f"{len(names)} records"
        raise RecordError(
            f"{number} with the ID {_cut(wanted)!r}. Expected: one of {listed}. Fix: playbooks/history.yml lists them"
        )
    return names[0]


def target(reported: Sequence[Node], wanted: str) -> dict[str, Any]:
    """Return {problems, id, former, former_start, plan, start, due, lines} of a rollback to the record ``wanted``.

    ``wanted``: the first digits of its ID, "" for the record before the current one. ``former``: the current record.
    ``plan``: of the target. ``due``: whether anything would change. ``lines`` announce the rollback. ``problems``
    prevent it; then they are the only value.
    """
    nodes = verified(reported)
    found, currents = known(nodes), sorted({node["current"] for node in nodes})
    if len(currents) != 1 or currents[0] not in found:
        problem = "the nodes have no common current record. Expected: one. Fix: run site.yml"
        return {"problems": [problem, *_warnings(nodes)]}
    former = currents[0]
    try:
        name = find(found, wanted) if wanted else found[former].record["parent"]
    except RecordError as error:
        return {"problems": [str(error), *_warnings(nodes)]}
    if name not in found:
        return {
            "problems": [f"there is no record before {_short(former)}. Expected: a second launch, or rollback_to: ID"]
        }
    if problems := _problems(name, found[name], [node["name"] for node in nodes]):
        return {"problems": problems + _warnings(nodes)}
    content, old = found[name].record["content"], found[former].record["content"]
    due = name != former or any(node["differs"] for node in nodes)
    return {
        "problems": [],
        "id": name,
        "former": former,
        "former_start": old["start"],
        "plan": {**content["plan"], "nodes": [{"name": node} for node in content["nodes"]]},
        "start": content["start"],
        "due": due,
        "lines": [
            f"rollback from {_short(former)} ({old['start']['model']}) to {_short(name)} ({content['start']['model']})",
            "vLLM and Ray stop on all nodes, and start again",
            *(f"  {line}" for line in difference(old, content)),
            *_warnings(nodes),
        ]
        if due
        else [f"{_short(name)} is the current record, and its launch inputs are in place", *_warnings(nodes)],
    }


def _problems(name: str, chosen: Known, nodes: Sequence[str]) -> list[str]:
    """Return each reason why the record cannot be restored on these nodes."""
    content = chosen.record["content"]
    problems = [f"{node}: the record {_short(name)} is missing" for node in chosen.without]
    if content["nodes"].keys() != set(nodes):
        problems.append(
            f"{_short(name)} is of the nodes {', '.join(content['nodes'])}. Expected: the inventory's nodes"
        )
    return [*problems, *chosen.missing]


def _short(name: str) -> str:
    return name[:SHOWN]


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
