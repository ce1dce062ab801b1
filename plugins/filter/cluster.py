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
inputs = Core("cluster.parse")
plan_lines = Core("cluster.report")
problem_types = Core("common.problems")


def cluster_plan(nodes: Sequence[Any], lock: str, known_variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return {plan, problems, report, warnings}; see module_utils/cluster/parse.py for the shape of a node."""
    given = inputs.parse(plain_data(nodes), str(lock))
    plan, problems = cluster.plan(given, plain_data(known_variables))
    return {
        "plan": plan.facts() if plan else {},
        "problems": [str(problem) for problem in problems],
        "report": problem_types.report(problems),
        "warnings": cluster.warnings(given, plan),
    }


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
