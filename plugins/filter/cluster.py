# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: plan the whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.lazy import Core, plain_data

cluster = Core("cluster.plan")
node_checks = Core("cluster.node_checks")
plan_lines = Core("cluster.report")
problem_types = Core("common.problems")


def cluster_plan(nodes: Sequence[Any], lock: str, known_variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return {plan, problems, report, warnings}; see module_utils/cluster/plan.py for the shape of a node."""
    given = plain_data(nodes)
    plan, problems = cluster.plan(given, str(lock), plain_data(known_variables))
    warnings = [sentence for node in given for sentence in node["tls"].get("warnings", ())]
    warnings += node_checks.warnings(given) + (plan["serve"]["warnings"] if plan else [])
    return {"plan": plan, "problems": [str(problem) for problem in problems], "report": problem_types.report(problems), "warnings": warnings}


def node_plan(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the plan of one node: the cluster's plan, with the node's own part under `node`."""
    for node in plan["nodes"]:
        if node["name"] == name:
            return {**plain_data(plan), "node": plain_data(node)}
    raise AnsibleFilterError(f"the plan has no node {name!r}")


def plan_text(plan: Mapping[str, Any], object_store_memory: int) -> list[str]:
    """Return the plan as text lines for people."""
    return plan_lines.lines(plain_data(plan), int(object_store_memory))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "cluster_plan": cluster_plan,
            "node_plan": node_plan,
            "plan_text": plan_text,
        }
