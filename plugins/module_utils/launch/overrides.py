# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What roles found out on a node that changes how its ranks are started, kept there for the runs that skip those roles.

An addition is ``{"runtime": str, "environment": {str: str}, "flags": [str], "files": {path: SHA-256}, "mounts": [{source, target,
read_only}]}``: the runtime that it was found out for (the plan's ``runtime.name``), the variables of the node's ranks and the arguments of
``vllm serve`` that it brings, the files that it looked at or changed, and what a container has to mount. A role may keep more for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Variables that are lists, by what separates their entries; there the user's and ours count both.
_LISTS: Mapping[str, str] = {"VLLM_DISABLED_KERNELS": ",", "LD_PRELOAD": ":"}


def current(recorded: Mapping[str, Mapping[str, Any]], runtime: str) -> dict[str, dict[str, Any]]:
    """Return those of a node's additions, by role, that were found out for this runtime."""
    return {role: dict(addition) for role, addition in sorted(recorded.items()) if addition.get("runtime") == runtime}


def added(plan: Mapping[str, Any], role: str, additions: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return a plan with what a role found out on each node, by name; None or no entry takes away what the node had of that role."""

    def changed(node: Mapping[str, Any]) -> dict[str, Any]:
        others = {name: addition for name, addition in node["additions"].items() if name != role}
        mine = additions.get(node["name"])
        return {**node, "additions": dict(sorted({**others, **({role: dict(mine)} if mine else {})}.items()))}

    result = {**plan, "nodes": [changed(node) for node in plan["nodes"]]}
    return result | ({"node": changed(plan["node"])} if "node" in plan else {})


def rank_environment(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of every process of a planned node: the plan's and the user's, which win, over the additions."""
    result: dict[str, str] = {}
    for layer in [*(addition["environment"] for addition in node["additions"].values()), node["environment"]]:
        for name, value in layer.items():
            result[name] = _joined(value, result[name], _LISTS[name]) if name in _LISTS and name in result else value
    return result


def _joined(first: str, second: str, separator: str) -> str:
    """Return both lists as one, with each entry once."""
    entries = [entry.strip() for entry in f"{first}{separator}{second}".split(separator)]
    return separator.join(dict.fromkeys(entry for entry in entries if entry))


def serve_flags(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the arguments that the additions of all nodes bring to ``vllm serve``, each addition's once."""
    found = dict.fromkeys(tuple(addition["flags"]) for node in nodes for addition in node["additions"].values())
    return [word for flags in found for word in flags]
