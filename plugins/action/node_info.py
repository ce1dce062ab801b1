# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of module node_info: it takes the options of comparisons from the plan, and compares a part once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.filter.core import to_nice_yaml

from ansible_collections.gb10.cluster.plugins.module_utils.comparison import of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The head of the netplan file, as Ansible's filter comment writes it.
_MANAGED = "#\n# Ansible managed\n#\n"
_OBEYED = ("_ansible", "ansible_", "add_")


def _values(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's comparison without the keys that Ansible obeys in a task's result, such as facts and hosts.

    Ansible cleans only the result of a module, not the values inside it.
    """
    return {name: value for name, value in part.items() if not name.startswith(_OBEYED)}


class ActionModule(Decision):
    """Compares the roles' parts of a node in one connection."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result; with O(parts) {parts}; with O(part) its comparison."""
        arguments = dict(self._task.args)
        parts, part = arguments.get("parts"), arguments.get("part")
        if part:
            known = self.compared(variables, part)
            # A server that did not answer may do so now.
            usable = known and not known.get("msg")
            return {"changed": False, **(known if usable else self._part(part, variables))}
        if parts is None:
            return self.module(arguments, variables)
        options = self._options(variables, first=True)
        nodes = [node["name"] for node in variables["gb10_plan"]["nodes"]]
        compared = self._compare({name: each for name, each in options.items() if name in parts}, variables)
        # The comparisons are longer than all other output of a run with -v.
        return {**compared, "nodes": nodes, "_ansible_verbose_override": True}

    def _part(self, part: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        options = self._options(variables, first=False)
        if part not in options:
            return {"skipped": True}
        result = self._compare({part: options[part]}, variables)
        return result if result.get("failed") else dict(result["parts"][part])

    def _compare(self, options: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return {parts}, each with its options, or the failed result."""
        if not options:
            return {"changed": False, "parts": {}}
        result = self.module({"parts": options}, variables)
        if result.get("failed"):
            return result
        parts = {name: {**_values(result["parts"][name]), "options": given} for name, given in options.items()}
        return {"changed": False, "parts": parts}

    def _options(self, variables: Mapping[str, Any], first: bool) -> dict[str, dict[str, Any]]:
        plan, inputs = self.plan(variables), self.variable(variables, "gb10_inputs")
        copy = self.variable(variables, "__vllm_patch_copy", {})
        controller = of_plan.Controller(
            client=self.client()[0],
            # Without SSH, Ansible runs on the node itself.
            local=self._connection.transport == "local",
            netplan=_MANAGED + to_nice_yaml(dict(plan.node.netplan), indent=2),
            copy=copy if copy.get("mounts") else {},
            first=first,
            requests=not self._task.check_mode,
        )
        settings = load.chosen(of_plan.Compared, inputs["settings"], "gb10_inputs.settings")
        return of_plan.options(plan, settings, controller)
