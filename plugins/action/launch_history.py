# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of launch_history, which documents it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import history, plan, record, upgrade
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Compares the launch records that all nodes reported, on the controller."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {lines, ...} as the module documents it, or a failure with every problem."""
        arguments = self.arguments(
            nodes={"type": "list", "elements": "str", "required": True},
            records={"type": "str", "required": True},
            purpose={"type": "str", "choices": ["list", "failure", "rollback", "upgrade"], "default": "list"},
            older={"type": "str", "default": ""},
            newer={"type": "str", "default": ""},
            target={"type": "str", "default": ""},
            prepared={"type": "bool", "default": False},
        )
        found = self._found(arguments, variables)
        # The plan and the starts would be longer than all other output of a run with -v.
        return {"changed": False, **found, "_ansible_verbose_override": True}

    def _found(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        nodes, purpose = arguments["nodes"], arguments["purpose"]
        reached = [node for node in nodes if node in variables["ansible_play_hosts"]] if purpose == "list" else nodes
        results = self.of_nodes(variables, reached, arguments["records"], {})
        reported = [{**result, "name": node} for node, result in results.items()]
        if purpose == "failure":
            errors = self.of_nodes(variables, nodes, "gb10_launch_problem", "")
            return plan.judge([{"name": node, "problem": errors[node], "record": results[node]} for node in nodes])
        if purpose == "rollback":
            return _possible(purpose, history.target(reported, arguments["target"]))
        if purpose == "upgrade":
            return _possible(purpose, upgrade.announce(reported, self.plan(variables), arguments["prepared"]))
        unread = [f"warning: not read: {node}" for node in nodes if node not in reached]
        older, newer = arguments["older"], arguments["newer"]
        try:
            lines = history.compared(reported, older, newer) if older or newer else history.lines(reported)
        except record.RecordError as error:
            return {"failed": True, "msg": str(error)}
        return {"lines": [*unread, *lines]}


def _possible(purpose: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the result without its problems, or a failure with them."""
    if problems := found.pop("problems"):
        return {"failed": True, "msg": f"The {purpose} is not possible; nothing was changed:\n" + "\n".join(problems)}
    return found
