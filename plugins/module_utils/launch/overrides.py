# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launch overrides of a node's ranks. Roles record them on the node, so that runs without those roles still apply them.

An override is ``{"runtime": str, "environment": {str: str}, "flags": [str], "files": {path: SHA-256}, "mounts":
[{source, target, read_only}]}``. ``runtime`` is the plan's ``runtime.name`` to which the override applies. Next are
variables of the ranks, arguments of ``vllm serve``, files that the role read or changed, and mounts of a container. A
role may add other keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, PlannedNode

#: The role that records the image's ID on a node, as files: {image: id}.
IMAGE_ROLE = "vllm_runtime"
#: The role that patches vLLM.
PATCH_ROLE = "vllm_patch"
#: List variables and their separators. The user's entries and the collection's are merged.
_LISTS: Mapping[str, str] = {"VLLM_DISABLED_KERNELS": ",", "LD_PRELOAD": ":"}


class Overridden(Protocol):
    """A node with variables of its ranks, and with launch overrides by role."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of every rank."""

    @property
    def additions(self) -> Mapping[str, Mapping[str, Any]]:
        """The launch overrides."""


def for_runtime(recorded: Mapping[str, Mapping[str, Any]], runtime: str) -> dict[str, dict[str, Any]]:
    """Return a node's overrides for this runtime, by role."""
    return {role: dict(addition) for role, addition in sorted(recorded.items()) if addition.get("runtime") == runtime}


def merge(plan: Plan, role: str, additions: Mapping[str, Mapping[str, Any] | None]) -> Plan:
    """Return a plan with a role's overrides by node name. None or a missing entry removes the override of that node."""

    def changed(node: PlannedNode) -> PlannedNode:
        others = {name: addition for name, addition in node.additions.items() if name != role}
        mine = additions.get(node.name)
        return replace(node, additions=dict(sorted({**others, **({role: dict(mine)} if mine else {})}.items())))

    return replace(plan, nodes=tuple(map(changed, plan.nodes)), node=changed(plan.node))


def rank_environment(node: Overridden) -> dict[str, str]:
    """Return the environment of every process of a node. The plan's and the user's values win over the overrides."""
    result: dict[str, str] = {}
    for layer in [*(addition["environment"] for addition in node.additions.values()), node.environment]:
        for name, value in layer.items():
            result[name] = _joined(value, result[name], _LISTS[name]) if name in _LISTS and name in result else value
    return result


def _joined(first: str, second: str, separator: str) -> str:
    """Return the merged list, with each entry once."""
    entries = [entry.strip() for entry in f"{first}{separator}{second}".split(separator)]
    return separator.join(dict.fromkeys(entry for entry in entries if entry))


def serve_flags(nodes: Sequence[Overridden]) -> list[str]:
    """Return the arguments of ``vllm serve`` from the overrides of all nodes, without duplicates."""
    found = dict.fromkeys(tuple(addition["flags"]) for node in nodes for addition in node.additions.values())
    return [word for flags in found for word in flags]
