# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module netplan_confirm: it decides from the results of all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import report as fabric_report
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Confirms a node's change only if no node has a problem, and rolls it back otherwise."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result; with O(changes) also {report}, without a connection if nothing is pending."""
        arguments = dict(self._task.args)
        changes, probe = arguments.pop("changes", []), str(arguments.pop("probe", ""))
        if not changes:
            return self.module(arguments, variables)
        plan = self.plan(variables)
        outcomes = self._outcomes(variables, [node.name for node in plan.nodes], changes, probe)
        report = fabric_report.report(outcomes, plan.mtu)
        pending = next(each["pending"] for each in outcomes if each["node"] == plan.node.name)
        if not pending:
            return {"changed": False, "report": report, "pending": "", "last": {}}
        wanted = {"identifier": pending, "state": "restored" if report else "confirmed"}
        return {**self.module(wanted, variables), "report": report}

    def _outcomes(
        self, variables: Mapping[str, Any], nodes: Sequence[str], changes: Sequence[str], probe: str
    ) -> list[dict[str, Any]]:
        """Return each node's outcome. A skipped task has a result without these values."""
        results = [self.of_nodes(variables, nodes, str(name), {}) for name in changes]
        probes = self.of_nodes(variables, nodes, probe, {})
        return [fabric_report.outcome(name, [each[name] for each in results], probes[name]) for name in nodes]
