# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module nccl_info: it decides from the libraries of all nodes whether NCCL is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import choice
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Runs the module, or with O(libraries) chooses without a connection."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result, or {build, final, why}."""
        arguments = dict(self._task.args)
        if libraries := str(arguments.pop("libraries", "")):
            return {"changed": False, **self._chosen(variables, libraries)}
        return self.module(arguments, variables)

    def _chosen(self, variables: Mapping[str, Any], libraries: str) -> dict[str, Any]:
        """Return the choice. A node without a result, such as in check mode, may have any library."""
        plan = self.plan(variables)
        results = self.of_nodes(variables, [node.name for node in plan.nodes], libraries, {})
        found = {name: result["library"] or {} for name, result in results.items() if "library" in result}
        nodes = [choice.NcclNode(node.name, node.capability or "", found.get(node.name)) for node in plan.nodes]
        return choice.choose(plan.nccl.wanted, plan.nccl.cluster, nodes).facts()
