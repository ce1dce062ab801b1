# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Confirm a node's network change only if no node has a problem, and roll it back otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import report as fabric_report
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``changes``: The variables of each node with the registered results of ``netplan_apply``.
    ``probe``: The variable of each node with the registered result of ``fabric_probe``.
    """

    changes: Sequence[str]
    probe: str


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the result of ``netplan_confirm`` with {report: the problems of all nodes}.

    If nothing is pending, it returns the same without a connection.
    """
    plan = step.plan(variables)
    outcomes = _outcomes(step, given, [node.name for node in plan.nodes], variables)
    report = fabric_report.report(outcomes, plan.mtu)
    pending = next(each["pending"] for each in outcomes if each["node"] == plan.node.name)
    if not pending:
        return {"changed": False, "report": report, "pending": "", "last": {}}
    wanted = {"identifier": pending, "state": "restored" if report else "confirmed"}
    return {**step.node("netplan_confirm", wanted, variables), "report": report}


def _outcomes(
    step: Decision, given: Inputs, nodes: Sequence[str], variables: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return each node's outcome. A skipped task has a result without these values."""
    results = [step.of_nodes(variables, nodes, name, {}) for name in given.changes]
    probes = step.of_nodes(variables, nodes, given.probe, {})
    return [fabric_report.outcome(name, [each[name] for each in results], probes[name]) for name in nodes]
