# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module vllm_api_key: it compares with known facts without a connection."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed, overrides
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Connects only if a key is given, or the known one differs from the plan."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        arguments = dict(self._task.args)
        known = arguments.pop("known", {})
        if arguments.pop("planned", False):
            plan = self.plan(variables)
            arguments["state"] = "present" if plan.node.head and plan.api_key else "absent"
            arguments["environment"] = overrides.rank_environment(plan.node)
        # Files in other places are not among the facts.
        if known and arguments.keys() <= {"state", "key", "environment"} and not arguments.get("key"):
            ranks = {str(name): str(value) for name, value in arguments.get("environment", {}).items()}
            version = installed.key_version(known, ranks) if arguments.get("state", "present") == "present" else ""
            if version:
                return {"changed": False, "version": version}
        return self.module(arguments, variables)
