# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the clusters of an inventory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data
from ansible_collections.gb10.cluster.plugins.plugin_utils.supported import require_run, static


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


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "node_cluster": node_cluster,
            "selected_clusters": selected_clusters,
        }
