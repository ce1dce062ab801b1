# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module launch_record: it makes the record of a planned launch, and compares it without a
connection."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Connects only if the launch is not the node's current record."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        arguments = dict(self._task.args)
        if launches := arguments.pop("launches", ""):
            arguments, recorded = self._planned(arguments, str(launches), variables)
            if recorded:
                return {"changed": False, "id": record.digest(arguments["content"])}
        return self.module(arguments, variables)

    def _planned(
        self, arguments: Mapping[str, Any], launches: str, variables: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """Return the module's arguments for the plan's launch, and whether the node has recorded it."""
        plan = self.plan(variables)
        found = self.of_nodes(variables, [node.name for node in plan.nodes], launches, {})
        content = record.content(plan, {name: each["launch"] for name, each in found.items()})
        here = found[plan.node.name]
        outcome = self.of_nodes(variables, [plan.head.name], "golden_outcome", {})[plan.head.name]
        planned = {
            "content": content,
            "node": plan.node.name,
            "time": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S"),
            "golden": outcome.get("outcome", ""),
            "findings": record.findings(plan),
        }
        return {**arguments, **planned}, here["settled"] and here["current"] == record.digest(content)
