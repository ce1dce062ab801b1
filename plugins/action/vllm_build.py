# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_build: it takes a build from the plan, and its environment from the locks."""

from __future__ import annotations

import hashlib
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import requirements
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data

#: What a build of the plan says to the module.
_OF_ITEM = ("name", "version", "capabilities", "architectures", "torch", "driver")


class ActionModule(Decision):
    """Runs the module with what the plan and the locks say."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result; with O(item) also {folder, requirements} of the build environment."""
        super().run(tmp, task_vars)
        arguments: dict[str, Any] = plain_data(self._task.args)
        item = arguments.pop("item", None)
        if item is None:
            return dict(self._execute_module(module_args=arguments, task_vars=task_vars))
        text = requirements.requirements(arguments.pop("lock"), arguments.pop("tools"))
        store = arguments["store"]
        folder = f"{store}/environment-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        arguments["environment"] = {
            **arguments.get("environment", {}),
            **requirements.dependencies(store, arguments.pop("dependencies", [])),
        }
        given = {**_of_plan(self.plan(task_vars or {})), **{name: item[name] for name in _OF_ITEM}, **arguments}
        result = self._execute_module(module_args={**given, "python": f"{folder}/bin/python"}, task_vars=task_vars)
        return {**result, "folder": folder, "requirements": text}


def _of_plan(plan: Plan) -> dict[str, Any]:
    """Return the module's options that all builds of the plan have in common."""
    units = list(dict.fromkeys((plan.ranks_unit, paths.VLLM_UNIT)))
    return {"device": plan.stack.device, "cuda": str(plan.stack.cuda), "units": units}
