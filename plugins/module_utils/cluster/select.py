# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The clusters of an inventory, and the ones that a run is for.

The hosts of the group ``gb10_cluster`` are one cluster. With groups whose names begin with ``gb10_cluster_``, each of
these groups is a cluster, and the rest of its name is the cluster's name. Only groups are read, because Ansible knows
no variable of a host when it chooses the hosts of a play.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

ALL = "gb10_cluster"
PREFIX = "gb10_cluster_"
ONLY = "gb10_only"


@dataclass(frozen=True)
class Cluster:
    """A cluster's name, "" for the only one of an inventory, and the names of its nodes in the order of
    gb10_cluster."""

    name: str
    nodes: tuple[str, ...]


def clusters(groups: Mapping[str, Sequence[str]]) -> tuple[Cluster, ...]:
    """Return the clusters of an inventory: group -> hosts. Raises ProblemsError."""
    nodes = groups.get(ALL, ())
    named = {group.removeprefix(PREFIX): tuple(groups[group]) for group in groups if group.startswith(PREFIX)}
    if not named:
        return (Cluster("", tuple(nodes)),) if nodes else ()
    refuse(_problems(nodes, named))
    return tuple(
        Cluster(name, tuple(node for node in nodes if node in named[name])) for name in sorted(named) if named[name]
    )


def chosen(groups: Mapping[str, Sequence[str]], only: str) -> tuple[Cluster, ...]:
    """Return the clusters that a run is for: all, or the one with the name ``only``. Raises ProblemsError."""
    found = clusters(groups)
    if not found:
        refuse([_none([group for group in groups if groups[group] and group not in ("all", "ungrouped")])])
    wanted = tuple(cluster for cluster in found if cluster.name == only) if only else found
    if only and not wanted:
        names = ", ".join(cluster.name for cluster in found if cluster.name)
        expected = f"one of {names}" if names else f"a cluster's name, but the inventory has no group {PREFIX}NAME"
        refuse([Problem(ONLY, repr(only), expected, f"correct {ONLY}, or leave it out")])
    return wanted


def _none(others: Sequence[str]) -> Problem:
    """Return the problem of an inventory without a node. ``others``: the groups with hosts."""
    found, fix = (
        f"no host in the group {ALL}",
        "pass an inventory, such as -i inventories/two-spark; after -i, correct the line that Ansible's "
        "warning above names, and name the file hosts*.yml if -i names its folder",
    )
    if others:
        found = f"{found}, but in {', '.join(others)}"
        fix = f"name the group that contains head and worker {ALL}"
    return Problem("inventory", found, "hosts in its child groups head and worker", fix)


def of_node(groups: Mapping[str, Sequence[str]], node: str) -> Cluster:
    """Return a node's cluster. Raises ProblemsError."""
    return next((cluster for cluster in clusters(groups) if node in cluster.nodes), Cluster("", (node,)))


def _problems(nodes: Sequence[str], named: Mapping[str, Sequence[str]]) -> list[Problem]:
    problems = []
    for name in named:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_]{0,31}", name):
            expected = "1 to 32 lower-case letters, digits and underscores after the prefix"
            problems.append(Problem(f"group {PREFIX}{name}", "its name is not valid", expected, "rename the group"))
        for node in [node for node in named[name] if node not in nodes]:
            expected = f"each of its hosts also in head or worker, and so in {ALL}"
            problems.append(
                Problem(f"group {PREFIX}{name}", f"{node} is not in {ALL}", expected, f"add {node} to head or worker")
            )
    for node in nodes:
        found = [f"{PREFIX}{name}" for name in sorted(named) if node in named[name]]
        if len(found) != 1:
            fix = f"leave {node} in one of them" if found else f"add {node} to one of them"
            where = f"in {' and '.join(found)}" if found else f"in no group {PREFIX}NAME"
            problems.append(Problem(f"host {node}", where, "each node in exactly one cluster", fix))
    return problems


def conflicts(plans: Mapping[str, Plan | None]) -> list[Problem]:
    """Return the problems between several clusters: name -> plan, None for a cluster without one.

    Clusters with separate cables may use the same addresses; two behind switches could share one.
    """
    problems = [_unplanned(name) for name, plan in plans.items() if not plan]
    owners: dict[str, tuple[str, str]] = {}
    for name, plan in plans.items():
        if not plan or topology.entry(plan.topology).medium != topology.SWITCHES:
            continue
        used = [(node.name, rail.address.partition("/")[0]) for node in plan.nodes for rail in node.rails]
        for node, address in used:
            other, owner = owners.setdefault(address, (name, node))
            if other != name:
                found = f"{address} on {node} of {name} and on {owner} of {other}, both behind a switch"
                fix = f"set another gb10_fabric_cidr for the group {PREFIX}{name}"
                problems.append(Problem("gb10_fabric_cidr", found, "each address once on a switch", fix))
    return problems


def _unplanned(name: str) -> Problem:
    fix = f"correct them, or run for another cluster with -e {ONLY}=NAME"
    return Problem(f"cluster {name}", "it has no plan; its problems are listed above", "a plan for each cluster", fix)
