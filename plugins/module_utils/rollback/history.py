# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of the launch records, the difference between two of them, and the target of a rollback.

A node reports anything in place of the result of the module launch_record_info, so verified() leaves out other values
than records. All other functions get its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices, start
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import (
    Api,
    Environment,
    Plan,
    PlannedNode,
    Serve,
)
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import SHOWN, Record, RecordError

#: Fewer digits name a record only by accident.
_PREFIX = 4
#: Maximum characters of a shown value, and maximum reasons of a node.
_LONGEST, _SHOWN_REASONS = 300, 8
#: A launch file's digest repeats other values, so these differences come last.
_FILES = "files"


@dataclass(frozen=True)
class Reported:
    """What a node reports.

    ``records``: first {id, content, time, parent, golden, findings, choices, missing} of each, then Records.
    ``invalid``: why it has no other ones. ``launch``: a record.Launch as plain data, which record.content() verifies.
    """

    name: str
    current: str = ""
    records: Sequence[Any] = ()
    invalid: Sequence[str] = ()
    differs: Sequence[str] = ()
    launch: Mapping[str, Any] = field(default_factory=dict)


#: ID -> name of a node -> its copy, newest first.
Known = Mapping[str, Mapping[str, Record]]


def verified(results: Mapping[str, Mapping[str, Any]]) -> list[Reported]:
    """Return the nodes with the records whose content is that of their ID. ``invalid`` has the reasons for others.

    ``results``: node -> its result of the module launch_record_info.
    """
    return [_verified(name, result) for name, result in results.items()]


def _verified(name: str, result: Mapping[str, Any]) -> Reported:
    try:
        node = load.chosen(Reported, {**result, "name": name}, "answer")
    except TypeError as error:
        return Reported(name, invalid=[_cut(error)])
    kept: list[Record] = []
    reasons = [_cut(reason) for reason in node.invalid]
    for data in node.records:
        try:
            kept.append(_record(data))
        except RecordError as error:
            record_id = data.get("id") if isinstance(data, Mapping) else data
            reasons.append(
                f"the record {_cut(record_id)} is left out: {_cut(error)}. Fix: examine this node, then run site.yml"
            )
    more = len(reasons) - _SHOWN_REASONS
    shown = reasons[:_SHOWN_REASONS] + ([f"{more} more records are left out"] if more > 0 else [])
    return replace(node, records=kept, invalid=shown)


def _record(data: Any) -> Record:
    """Return a record with the types of the plan. Raises RecordError."""
    if bounded_json.deeper(data):
        raise RecordError(f"it is nested deeper than {bounded_json.DEPTH}")
    try:
        found = record.parse(data, data["id"])
        plan, nodes = found.content["plan"], found.content["nodes"].values()
        parts: list[tuple[Any, Mapping[str, Any]]] = [
            (Plan, {key: plan[key] for key in record.PLAN}),
            *((Environment, plan["runtime"]), (Api, plan["api"]), (Serve, plan["serve"])),
            *((PlannedNode, {key: node[key] for key in record.NODE}) for node in nodes),
        ]
        for kind, values in parts:
            load.part(kind, values, kind.__name__)
        choices.summary(found.choices)
        start.summary(found.started)
    except (LookupError, TypeError, AttributeError) as error:
        raise RecordError(f"it is no record of a launch: {error!r}") from None
    return found


def known(nodes: Sequence[Reported]) -> Known:
    """Return the records of all nodes."""
    found: dict[str, dict[str, Record]] = {}
    for node in nodes:
        for each in node.records:
            found.setdefault(each.id, {})[node.name] = each
    newest = sorted(found, key=lambda name: (first(found[name]).time, name), reverse=True)
    return {name: found[name] for name in newest}


def first(copies: Mapping[str, Record]) -> Record:
    """Return the head's copy of a record, or the first: the ID covers only the content, not the time and the parent."""
    copy = next(iter(copies.values()))
    return copies.get(copy.content["plan"]["head"]["name"], copy)


def missing(copies: Mapping[str, Record]) -> list[str]:
    """Return what a rollback to a record lacks on the nodes."""
    return [f"{node}: {_cut(item)}" for node, copy in copies.items() for item in copy.missing]


def lines(nodes: Sequence[Reported]) -> list[str]:
    """Return the list of the records as text, newest first, then the nodes that disagree and the damaged records."""
    found = known(nodes)
    result = [line for name in found for line in _entry(name, found, nodes)] or [
        "no launch is recorded on this cluster"
    ]
    if len({node.current for node in nodes}) > 1:
        shown = ", ".join(f"{node.name} {_short(node.current) or 'none'}" for node in nodes)
        result.append(f"warning: the nodes have different current records: {shown}. Fix: run site.yml")
    return result + _warnings(nodes)


def _warnings(nodes: Sequence[Reported]) -> list[str]:
    return [f"warning: {node.name}: {reason}" for node in nodes for reason in node.invalid]


def _entry(name: str, found: Known, nodes: Sequence[Reported]) -> Iterator[str]:
    copies, copy = found[name], first(found[name])
    mark = " (current)" if any(node.current == name for node in nodes) else ""
    yield f"{_short(name)}  {_cut(copy.time) or 'time unknown'}  {launch(copy.content)}{mark}"
    if copy.parent in found:
        changed = difference(first(found[copy.parent]).content, copy.content) or ["nothing"]
        more = [f"and {len(changed) - 3} more"] if len(changed) > 3 else []
        yield f"    since {_short(copy.parent)}: {', '.join(['; '.join(changed[:3]), *more])}"
    if copy.golden:
        yield f"    {_cut(copy.golden)}"
    if chosen := choices.summary([process for each in copies.values() for process in each.choices]):
        yield f"    vLLM logged: {_cut(chosen)}"
    if copy.started:
        yield f"    {_cut(start.summary(copy.started))}"
    yield from (f"    {line}" for line in _lacks(copies, nodes) or ["on all nodes; a rollback needs no download"])


def _lacks(copies: Mapping[str, Record], nodes: Sequence[Reported]) -> list[str]:
    without = [node.name for node in nodes if node.name not in copies]
    lost = [f"needed for a rollback: {item}" for item in missing(copies)]
    return [f"warning: not on {', '.join(without)}", *lost] if without else lost


def launch(content: Mapping[str, Any]) -> str:
    """Return the model and the stack of a content."""
    return _cut(f"{content['plan']['model']}, stack {content['plan']['stack']['name']}")


def compared(nodes: Sequence[Reported], old: str, new: str) -> list[str]:
    """Return the difference between two records as text. Raises RecordError if an ID names no record."""
    found = known(nodes)
    one, other = find(found, old), find(found, new)
    changed = difference(first(found[one]).content, first(found[other]).content)
    return [f"from {_short(one)} to {_short(other)}:", *(f"  {line}" for line in changed or ["no difference"])]


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line for each value that differs between two contents: ``place: old -> new``, for a list its entries."""
    before, after = (dict([*_flat(content["plan"]), *_flat(content["nodes"])]) for content in (old, new))
    return [
        line
        for place in sorted(before.keys() | after.keys(), key=lambda place: (f" {_FILES} " in place, place))
        if before.get(place) != after.get(place)
        for line in _changes(_cut(place), before.get(place), after.get(place))
    ]


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of each value that has no others."""
    if not isinstance(value, Mapping) or not value:
        yield place, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{place} {key}".lstrip())


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


def find(found: Known, wanted: str) -> str:
    """Return the ID that begins with ``wanted``. Raises RecordError for none or several."""
    names = [name for name in found if name.startswith(wanted)] if len(wanted) >= _PREFIX else []
    if len(names) != 1:
        listed = ", ".join(map(_short, found)) or "none"
        number = "no record" if not names else f"{len(names)} records"
        raise RecordError(
            f"{number} with the ID {_cut(wanted)!r}. Expected: one of {listed}. Fix: playbooks/history.yml lists them"
        )
    return names[0]


def target(nodes: Sequence[Reported], wanted: str) -> dict[str, Any]:
    """Return {id, former, former_start, plan, start, due, lines} of a rollback to the record ``wanted``.

    ``wanted``: the first digits of its ID, "" for the record before the current one. ``former``: the current record.
    ``plan``: of the target. ``due``: whether anything would change. ``lines`` announce the rollback. Raises RecordError
    with every reason why it is not possible.
    """
    found = known(nodes)
    try:
        former, name = _chosen(nodes, found, wanted)
    except RecordError as error:
        raise RecordError("\n".join([str(error), *_warnings(nodes)])) from None
    old, new = first(found[former]).content, first(found[name]).content
    due = name != former or any(node.differs for node in nodes)
    announced = [
        f"rollback from {_short(former)} ({old['plan']['model']}) to {_short(name)} ({new['plan']['model']})",
        "vLLM and Ray stop on all nodes, and start again",
        *(f"  {line}" for line in difference(old, new)),
    ]
    settled = f"{_short(name)} is the current record, and its launch inputs are in place"
    return {
        "id": name,
        "former": former,
        "former_start": old["start"],
        "plan": {**new["plan"], "nodes": [{"name": node} for node in new["nodes"]]},
        "start": new["start"],
        "due": due,
        "lines": [*(announced if due else [settled]), *_warnings(nodes)],
    }


def _chosen(nodes: Sequence[Reported], found: Known, wanted: str) -> tuple[str, str]:
    """Return the IDs of the current record and of that to return to. Raises RecordError."""
    currents = {node.current for node in nodes}
    former = currents.pop()
    if currents or former not in found:
        raise RecordError("the nodes have no common current record. Expected: one. Fix: run site.yml")
    name = find(found, wanted) if wanted else first(found[former]).parent
    if name not in found:
        raise RecordError(f"there is no record before {_short(former)}. Expected: a second launch, or rollback_to: ID")
    problems = [f"{node.name}: the record {_short(name)} is missing" for node in nodes if node.name not in found[name]]
    planned = first(found[name]).content["nodes"]
    if planned.keys() != {node.name for node in nodes}:
        problems.append(f"{_short(name)} is of the nodes {', '.join(planned)}. Expected: the inventory's nodes")
    if problems := problems + missing(found[name]):
        raise RecordError("\n".join(problems))
    return former, name


def _short(name: str) -> str:
    return _cut(name[:SHOWN])


def _cut(value: Any) -> str:
    """Return a value as one short line, so that a node adds no line of its own."""
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
