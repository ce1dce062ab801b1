# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: plan the whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.supported import require_run, static


def cluster_plan(
    nodes: Sequence[Any], lock: str, recipe: Mapping[str, str] | None = None, layers: Sequence[Any] = ()
) -> dict[str, Any]:
    """Return {plan, problems, report, warnings}; see module_utils/cluster/parse.py for the shape of a node.

    ``recipe``: {name, path, text} of gb10_recipe; without a name there is none. ``layers``: of the module
    cluster_inputs.
    """
    # For playbooks of others, with the role gb10.
    require_run()
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import parse
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
    from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs, recipe_yaml

    document = None
    if recipe and recipe["name"]:
        data, refused = recipe_yaml.load(str(recipe["text"]), str(recipe["path"] or recipe["name"]))
        document = refused or data
    given = parse.parse(plain_data(nodes), str(lock), document, plain_data(layers))
    plan, problems = cluster.plan(given, argument_specs.known())
    return {
        "plan": plan.facts() if plan else {},
        "problems": [str(problem) for problem in problems],
        "report": report(problems),
        "warnings": cluster.warnings(given, plan),
    }


def cluster_models(nodes: Sequence[Any], lock: str, layers: Sequence[Any] = ()) -> dict[str, Any]:
    """Return {lines, problems, report}: the table of all models on these nodes, or the problems of every plan."""
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import models, parse
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
    from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs

    given = parse.parse(plain_data(nodes), str(lock), None, plain_data(layers))
    rows, problems = models.survey(given, argument_specs.known())
    return {
        "lines": models.lines(rows, len(given.nodes), given.label) if rows else [],
        "problems": [str(problem) for problem in problems],
        "report": report(problems),
    }


def selected_clusters(groups: Mapping[str, Any], only: str = "") -> dict[str, Any]:
    """Return {hosts, sizes, clusters, heads} of the clusters that a run is for; no node or a wrong group or name is an
    error.

    ``hosts`` are for a play, in the order of the clusters, and ``sizes`` for its batches ([] for one cluster).
    ``clusters``: name -> nodes, ``heads``: name -> head. In a check of the syntax without an inventory, ``hosts`` is
    the group's name.
    """
    require_run()
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import select
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError

    plain = plain_data(groups)
    try:
        empty = not plain.get(select.ALL) and static()
        found = () if empty else select.chosen(plain, str(only))
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error
    return {
        "hosts": [node for cluster in found for node in cluster.nodes] or [select.ALL],
        "sizes": [len(cluster.nodes) for cluster in found] if len(found) > 1 else [],
        "clusters": {cluster.name: list(cluster.nodes) for cluster in found},
        "heads": {
            cluster.name or "gb10": node
            for cluster in found
            for node in cluster.nodes
            if node in groups.get("head", ())
        },
    }


def node_cluster(groups: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return {name, nodes, heads, workers} of the node's cluster; the name of the only one is empty."""
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import select

    plain = plain_data(groups)
    cluster = select.of_node(plain, str(node))
    return {
        "name": cluster.name,
        "nodes": list(cluster.nodes),
        "heads": [name for name in cluster.nodes if name in plain.get("head", ())],
        "workers": [name for name in cluster.nodes if name in plain.get("worker", ())],
    }


def cluster_conflicts(clusters: Mapping[str, Any], plans: Mapping[str, Any]) -> dict[str, Any]:
    """Return {problems, report}: the clusters without a plan, and conflicts between clusters.

    ``clusters``: name -> nodes. ``plans``: node -> gb10_plan, {} for a node with problems.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import select
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report

    found = {
        name: next((typed_plan(plans[node]) for node in nodes if plans.get(node)), None)
        for name, nodes in clusters.items()
    }
    problems = select.conflicts(found) if len(found) > 1 else []
    return {"problems": [str(problem) for problem in problems], "report": report(problems)}


def node_plan(plan: Fact, name: str) -> dict[str, Any]:
    """Return the plan of one node: the cluster's plan, with the node's own part under `node`."""
    for node in plan["nodes"]:
        if node["name"] == name:
            return {**plain_data(plan), "node": plain_data(node)}
    raise AnsibleFilterError(f"the plan has no node {name!r}")


def plan_text(plan: Fact, object_store_memory: int) -> list[str]:
    """Return the plan as text lines for people."""
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report

    return report.lines(typed_plan(plan), int(object_store_memory))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "cluster_conflicts": cluster_conflicts,
            "cluster_models": cluster_models,
            "cluster_plan": cluster_plan,
            "node_cluster": node_cluster,
            "node_plan": node_plan,
            "plan_text": plan_text,
            "selected_clusters": selected_clusters,
        }
