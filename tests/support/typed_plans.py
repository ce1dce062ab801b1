"""The recorded plan of two Sparks with changes, as the core reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import (
    Container,
    Environment,
    Plan,
    PlannedNode,
)

_RECORDED = json.loads((Path(__file__).parents[1] / "unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
_NODE = _RECORDED["nodes"][0]
#: Values that neither the recorded plan nor a test has.
_BLANK: Mapping[Any, Any] = {str: "", int: 0, bool: False}


def typed(changes: Mapping[str, Any]) -> Plan:
    """Return the plan with changes. Parts without a change are those of two Sparks."""
    return load.plan(_merged(Plan, {**_RECORDED, "node": _NODE}, changes))


def fact(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fact gb10_plan with changes."""
    return typed(changes).facts()


def typed_node(changes: Mapping[str, Any]) -> PlannedNode:
    """Return the first node with changes."""
    return load.load(PlannedNode, _merged(PlannedNode, _NODE, changes), "node")


def _merged(kind: Any, recorded: Any, changes: Any) -> Any:
    """Return changes with their missing values: of the recorded plan, otherwise a blank value."""
    kind = _chosen(kind, recorded, changes)
    if isinstance(changes, list | tuple) and is_dataclass(next(iter(get_args(kind)), None)):
        inner = get_args(kind)[0]
        return [_merged(inner, _NODE if inner is PlannedNode else {}, each) for each in changes]
    if not is_dataclass(kind) or not isinstance(changes, Mapping):
        return changes
    hints, recorded = get_type_hints(kind), recorded or {}
    known = {each.name: recorded.get(each.name, _BLANK.get(hints[each.name], {})) for each in fields(kind)}
    return known | {name: _merged(hints.get(name), recorded.get(name), value) for name, value in changes.items()}


def _chosen(kind: Any, recorded: Any, changes: Any) -> Any:
    """Return the type of a value that can have several."""
    if kind == Container | Environment:
        return Environment if changes.get("kind", recorded["kind"]) == "native" else Container
    if type(None) in get_args(kind) and changes:
        return next((each for each in get_args(kind) if is_dataclass(each)), kind)
    return kind
