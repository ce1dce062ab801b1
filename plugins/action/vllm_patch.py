# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_patch: it compares the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.patch import checks, of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import PatchSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


class ActionModule(Decision):
    """Runs the module, or decides from the results of all nodes."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result, or with O(compared) {report, overrides, news, recorded}."""
        arguments: dict[str, Any] = plain_data(self._task.args)
        if compared := str(arguments.get("compared", "")):
            return self._decided(variables, compared)
        if arguments.pop("planned", False):
            copy = self.variable(variables, "__vllm_patch_copy", {})
            settings = self.role_settings(variables, PatchSettings)
            arguments |= of_plan.options(self.plan(variables), settings, copy if copy.get("mounts") else {})
        return self.module(arguments, variables)

    def _decided(self, variables: Mapping[str, Any], compared: str) -> dict[str, Any]:
        plan = self.plan(variables)
        present = self.role_settings(variables, PatchSettings).present
        results = self.of_nodes(variables, [node.name for node in plan.nodes], compared, {})
        problems = checks.check(results)
        copies = self.of_nodes(variables, results, "__vllm_patch_copy", {})
        wanted = {
            name: of_plan.overrides(each, copies[name].get("mounts", []), present) for name, each in results.items()
        }
        overrides = wanted[plan.node.name]
        files = plan.node.additions.get(of_plan.ROLE, {}).get("files", {})
        return {
            "changed": False,
            "report": report(problems) if problems else "",
            "overrides": overrides,
            "news": "patches" in results[plan.node.name] and overrides["files"] != files,
            "recorded": of_plan.recorded(plan, wanted),
        }
