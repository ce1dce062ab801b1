# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_api_key: it takes the options from the plan."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Whether the node has the key, and its environment, follow from the plan."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        arguments = dict(self._task.args)
        if arguments.pop("planned", False):
            plan = self.plan(variables)
            arguments["state"] = "present" if plan.node.head and plan.api_key else "absent"
            arguments["environment"] = overrides.rank_environment(plan.node)
        return self.module(arguments, variables)
