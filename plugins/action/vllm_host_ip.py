# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_host_ip: it takes the options from the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Adds the other nodes' interfaces."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        arguments = dict(self._task.args)
        if arguments.pop("planned", False):
            plan = self.plan(variables)
            names = [node.name for node in plan.nodes]
            fabric = self.of_nodes(variables, names, "__qsfp_netplan_compared", {})
            observed = self.observed(variables, names)
            # A change of this run may have removed an address.
            arguments |= _planned(plan, {name: observed[name] for name in names if not fabric[name].get("differences")})
        return self.module(arguments, variables)


def _planned(plan: Plan, read: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's options. ``read``: the facts of nodes from the start of this run."""
    node = plan.node
    others = {
        name: found["interfaces"] for name, found in read.items() if found.get("interfaces") and name != node.name
    }
    return {
        "node": node.name,
        "address": node.address,
        "interface": node.interface,
        "others": others,
        "ray_unit": paths.RAY_UNIT if plan.by_ray else "",
        "nodes": {each.name: each.address for each in plan.nodes},
        "environment": overrides.rank_environment(node),
    }
