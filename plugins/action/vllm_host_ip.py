# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_host_ip: it compares with known facts without a connection."""

from __future__ import annotations

from collections.abc import Mapping
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
            plan = self.plan(variables)
            arguments |= _planned(
                plan, self.of_nodes(variables, [node.name for node in plan.nodes], "gb10_installed", {})
            )
        path = str(arguments.get("path", paths.RANK_ENVIRONMENT))
        if known and _unchanged(known, path, arguments):
            return {"changed": False, "path": path}
        return self.module(arguments, variables)


def _planned(plan: Plan, read: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's options. ``read``: the facts of each node in this run, {} for one that has changed since."""
    node = plan.node
    others = {
        name: found["interfaces"] for name, found in read.items() if found.get("interfaces") and name != node.name
    }
    return {
        "node": node.name,
        "address": node.address,
        "interface": node.interface,
        "others": others,
        "ray_unit": paths.RAY_UNIT if plan.executor == "ray" else "",
        "nodes": {each.name: each.address for each in plan.nodes},
        "environment": overrides.rank_environment(node),
    }


def _unchanged(known: dict[str, Any], path: str, arguments: dict[str, Any]) -> bool:
    """Return whether the module would change and report nothing. It reports invalid arguments itself."""
    try:
        text = host_ip.text(arguments.get("environment", {}), arguments["address"])
        node, address, interface, nodes = (arguments[name] for name in ("node", "address", "interface", "nodes"))
        problems = host_ip.check(node, address, interface, nodes, known["interfaces"], arguments.get("others", {}))
    except (KeyError, ValueError):
        return False
    return not problems and installed.has(known, (), {path: text})
