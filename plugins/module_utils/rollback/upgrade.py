# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The differences between the running launch and a new plan, and why an upgrade to that plan is not possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan, PlannedNode
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import history
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.history import Reported
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import RecordError

#: Values of a node that repeat others of the plan.
_REPEATED = ("files", "runtime_mark")


def announce(nodes: Sequence[Reported], plan: Plan, prepared: bool) -> dict[str, Any]:
    """Return {lines, same_runtime} of an upgrade to a plan. Raises RecordError with every reason why it cannot be.

    ``prepared``: whether the patches and NCCL of the new runtime are in the plan; otherwise the running ones are
    assumed. ``same_runtime``: whether the running launch uses the plan's runtime.
    """
    found = history.known(nodes)
    # After a killed run, the nodes may differ.
    current = next((node.current for node in nodes if node.current in found), "")
    if not current:
        raise RecordError("no launch is recorded on this cluster. Expected: a model that answered. Fix: run site.yml")
    old = history.first(found[current])
    if problems := _problems(old.content, plan):
        raise RecordError("\n".join(problems))
    same = old.content["plan"]["runtime"].get("name") == plan.runtime.name
    new = plan if prepared or same else replace(plan, nodes=_assumed(plan.nodes, old.content["nodes"]))
    content = rollback_record.content(new, {node.name: node.launch for node in nodes})
    changed = history.difference(_own(old.content), _own(content))
    return {
        "same_runtime": same,
        "lines": [
            f"upgrade from {current[: rollback_record.SHOWN]} ({history.launch(old.content)}) "
            f"to {history.launch(content)}",
            *(f"  {line}" for line in changed or ["no difference"]),
            *_rules(old.findings, rollback_record.findings(plan)),
        ],
    }


def _problems(old: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return each reason why the new launch cannot be prepared while the old one serves."""
    names = [node.name for node in plan.nodes]
    if old["nodes"].keys() != set(names):
        return [
            (
                f"the running launch is of the nodes {', '.join(old['nodes'])}. Expected: {', '.join(names)}. Fix: "
                "run site.yml"
            )
        ]
    runtime = plan.runtime
    if not isinstance(runtime, Environment) or runtime.path != old["plan"]["runtime"].get("path"):
        return []
    return [
        f"gb10_runtime_wheels: {node.name} serves from {runtime.path}, where other wheels must be installed. "
        "Expected: another runtime. Fix: run site.yml, which stops the model first"
        for node in plan.nodes
        if node.runtime_mark != old["nodes"][node.name]["runtime_mark"]
    ]


def _assumed(nodes: Sequence[PlannedNode], old: Mapping[str, Mapping[str, Any]]) -> tuple[PlannedNode, ...]:
    """Return the nodes with the running patches and NCCL, until those of the new runtime are known."""
    return tuple(replace(node, additions=node.additions or old[node.name]["additions"]) for node in nodes)


def _own(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a content without the values that repeat others."""
    nodes = {
        name: {key: value for key, value in node.items() if key not in _REPEATED}
        for name, node in content["nodes"].items()
    }
    return {**content, "nodes": nodes}


def _rules(old: Sequence[str] | None, new: Sequence[str]) -> list[str]:
    """Return the findings of the rules that only one of the launches has, by severity, rule and input."""
    if old is None:
        return ["the rules' findings of the running launch were not recorded", *(f"  rule: {line}" for line in new)]
    before, after = ({line.partition(": ")[0] for line in lines} for lines in (old, new))
    return [
        *(f"  rule, no longer: {line}" for line in old if line.partition(": ")[0] not in after),
        *(f"  rule, new: {line}" for line in new if line.partition(": ")[0] not in before),
    ]
