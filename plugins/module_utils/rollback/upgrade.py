# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The differences between the running launch and a new plan, and why an upgrade to that plan is not possible.

A node is that of history.py, with its launch: ``{..., "launch": {...}}``, from the module launch_record_info.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import history
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as records
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.history import Node
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

#: Values of a node that repeat others of the plan.
_REPEATED = ("files", "runtime_mark")


def announce(reported: Sequence[Node], plan: Mapping[str, Any], prepared: bool) -> dict[str, Any]:
    """Return {problems, lines, same_runtime} of an upgrade to a plan.

    ``prepared``: whether the patches and NCCL of the new runtime are in the plan; otherwise the running ones are
    assumed. ``same_runtime``: whether the running launch uses the plan's runtime. ``problems`` prevent the upgrade;
    then there are no other values.
    """
    nodes = [
        {**node, "launch": given["launch"]} for node, given in zip(history.verified(reported), reported, strict=True)
    ]
    found = history.known(nodes)
    # After a killed run, the nodes may differ.
    current = next((node["current"] for node in nodes if node["current"] in found), "")
    if not current:
        return {
            "problems": ["no launch is recorded on this cluster. Expected: a model that answered. Fix: run site.yml"]
        }
    old = found[current].record
    if problems := _problems(old["content"], plan):
        return {"problems": problems}
    runtime = old["content"]["plan"]["runtime"]
    same = runtime["name"] == plan["runtime"]["name"]
    new = {**plan, "nodes": plan["nodes"] if prepared or same else _assumed(plan["nodes"], old["content"]["nodes"])}
    content = records.content(new, {node["name"]: node["launch"] for node in nodes})
    changed = history.difference(_own(old["content"]), _own(content))
    return {
        "problems": [],
        "same_runtime": same,
        "lines": [
            f"upgrade from {current[: records.SHOWN]} ({_named(old['content']['plan'])}) to {_named(plan)}",
            *(f"  {line}" for line in changed or ["no difference"]),
            *_rules(old.get("findings"), records.findings(plan)),
        ],
    }


def _problems(old: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Return each reason why the new launch cannot be prepared while the old one serves."""
    if not old["plan"]:
        return ["the running launch is of an earlier release, which did not record its runtime. Fix: run site.yml"]
    names = [node["name"] for node in plan["nodes"]]
    if old["nodes"].keys() != set(names):
        return [
            (
                f"the running launch is of the nodes {', '.join(old['nodes'])}. Expected: {', '.join(names)}. Fix: "
                "run site.yml"
            )
        ]
    runtime = plan["runtime"]
    if runtime["kind"] != stacks.NATIVE or runtime["path"] != old["plan"]["runtime"].get("path"):
        return []
    return [
        f"gb10_runtime_wheels: {node['name']} serves from {runtime['path']}, where other wheels must be installed. "
        "Expected: another runtime. Fix: run site.yml, which stops the model first"
        for node in plan["nodes"]
        if node["runtime_mark"] != old["nodes"][node["name"]]["runtime_mark"]
    ]


def _assumed(nodes: Sequence[Mapping[str, Any]], old: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes with the running patches and NCCL, until those of the new runtime are known."""
    return [{**node, "additions": node["additions"] or old[node["name"]]["additions"]} for node in nodes]


def _own(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a content without the values that repeat others."""
    nodes = {
        name: {key: value for key, value in node.items() if key not in _REPEATED}
        for name, node in content["nodes"].items()
    }
    return {**content, "nodes": nodes}


def _named(plan: Mapping[str, Any]) -> str:
    return f"{plan['model']}, stack {plan['stack']['name']}"


def _rules(old: Sequence[str] | None, new: Sequence[str]) -> list[str]:
    """Return the findings of the rules that only one of the launches has, by severity, rule and input."""
    if old is None:
        return ["the rules' findings of the running launch were not recorded", *(f"  rule: {line}" for line in new)]
    before, after = ({line.partition(": ")[0] for line in lines} for lines in (old, new))
    return [
        *(f"  rule, no longer: {line}" for line in old if line.partition(": ")[0] not in after),
        *(f"  rule, new: {line}" for line in new if line.partition(": ")[0] not in before),
    ]
