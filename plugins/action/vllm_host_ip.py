# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_host_ip: it compares with known facts without a connection."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import host_ip
from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed, overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Connects only if the known file or the address of the interface differs."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        arguments = dict(self._task.args)
        known = arguments.pop("known", {})
        if arguments.pop("planned", False):
            arguments |= _planned(self.plan(variables))
        path = str(arguments.get("path", paths.RANK_ENVIRONMENT))
        if known and _unchanged(known, path, arguments):
            return {"changed": False, "path": path}
        return self.module(arguments, variables)


def _planned(plan: Plan) -> dict[str, Any]:
    node = plan.node
    return {
        "node": node.name,
        "address": node.address,
        "interface": node.interface,
        "ray_node_ip_address": node.address,
        "nodes": {each.name: each.address for each in plan.nodes},
        "environment": overrides.rank_environment(node),
    }


def _unchanged(known: dict[str, Any], path: str, arguments: dict[str, Any]) -> bool:
    """Return whether the module would change and report nothing. It reports invalid arguments itself."""
    names = ("node", "address", "interface", "ray_node_ip_address", "nodes")
    try:
        text = host_ip.text(arguments.get("environment", {}), arguments["address"])
        node, address, interface, of_ray, nodes = (arguments[name] for name in names)
        problems = host_ip.check(node, address, interface, of_ray, nodes, known["interfaces"])
    except (KeyError, ValueError):
        return False
    return not problems and installed.has(known, (), {path: text})
