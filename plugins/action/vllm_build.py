# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_build: it takes a build from the plan, and its environment from the locks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import options, requirements
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Item
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data

_TOOLS = Path(__file__).parents[2] / "roles/vllm_build/files/tools.lock"


class ActionModule(Decision):
    """Runs the module with values from the plan, the role's variables and the locks."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result; with O(item) also {folder, requirements, program} of the build environment."""
        arguments = plain_data(dict(self._task.args))
        if "item" not in arguments:
            return self.module(arguments, variables)
        plan, inputs = self.plan(variables), self.variable(variables, "gb10_inputs")
        settings = load.chosen(options.RoleSettings, inputs["settings"], "gb10_inputs.settings")
        item, head = load.load(Item, arguments["item"], "vllm_build.item"), self._head(plan, variables)
        given = options.check(settings, plan.build, item, head)
        if source := arguments.get("source"):
            given |= {"source": source, **options.start(settings, plan.build, head.store)}
        result = self.module(given, variables)
        return {**result, "folder": head.folder, "requirements": head.requirements, "program": given["program"]}

    def _head(self, plan: Plan, variables: Mapping[str, Any]) -> options.Head:
        lock = self.file(plan.runtime.lock, variables)
        return options.Head(
            store=f"{plan.root}/build",
            device=plan.stack.device,
            cuda=str(plan.stack.cuda),
            units=list(dict.fromkeys((plan.ranks_unit, paths.VLLM_UNIT))),
            requirements=requirements.requirements(lock, _TOOLS.read_text(encoding="utf-8")),
        )
