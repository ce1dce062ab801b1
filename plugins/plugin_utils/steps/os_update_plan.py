# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Announce an update of DGX OS, or refuse it with every reason.

Decides from the results of ``os_update_info`` on all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan, report
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import State
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

PLANNED = False


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``units``: The nodes that serve one model together, by their cluster.
    ``gateways``: The hosts with a gateway.
    ``reports``: The name of the variable with each gateway's result of ``gateway_info``.
    ``results``: The name of the variable with each node's result.
    ``expected``: What may come next on nodes whose update is under way. Anything else is a problem.
    ``without_way_back``: Whether an update is accepted that has no way back.
    ``again``: Whether to boot a kernel once more that did not start.
    ``firmware``: Whether offered firmware is a reason for an update.
    ``kernel_options``: The options that the update adds to the kernel's command line.
    ``refuse``: Whether the task fails with the reasons. Otherwise ``problem`` has them.
    """

    units: Mapping[str, Any]
    gateways: Sequence[str] = ()
    reports: str = ""
    results: str
    expected: Sequence[str] = field(default=tuple(plan.STAGES), metadata={"choices": list(plan.STAGES)})
    without_way_back: bool = False
    again: bool = False
    firmware: bool = False
    kernel_options: Sequence[str] = field(default=(), metadata={"choices": list(plan.OFFERED)})
    refuse: bool = True


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {lines, problem, begins, serves, served, waiting, stages}, or a failure with every problem."""
    units, again = given.units, given.again
    nodes = [node for unit in units.values() for node in unit]
    read = step.of_nodes(variables, nodes, given.results, {})
    states = _states(read, given.firmware, given.kernel_options)
    found = report.refused(states, given.without_way_back, again)
    found += report.unexpected(states, given.expected, again)
    gateways = step.of_nodes(variables, given.gateways, given.reports, {})
    of_units = {unit: {node: states[node] for node in nodes if node in states} for unit, nodes in units.items()}
    found += [problem for unit in of_units.values() for problem in report.unequal(unit, again)]
    lines = report.announced(of_units, again, gateways)
    numbered = [f"  {number}. {problem}" for number, problem in enumerate(found, 1)]
    problem = "\n".join(["The update does not go on.", *numbered]) if found else ""
    if problem and given.refuse:
        return {"failed": True, "msg": problem}
    return {"changed": False, "problem": problem, "lines": lines, **_next(states, again)}


def _states(results: Mapping[str, Mapping[str, Any]], firmware: bool, options: Sequence[str]) -> dict[str, State]:
    states = {name: load.load(State, result["state"], name) for name, result in results.items() if "state" in result}
    return {name: replace(state, with_firmware=firmware, wanted=tuple(options)) for name, state in states.items()}


def _next(states: Mapping[str, State], again: bool) -> dict[str, Any]:
    """Return the inputs of the roles' conditions: {stages, begins, serves, served, waiting}."""
    stages = {name: plan.stage(each, again) for name, each in states.items()}
    serves = any(each.serves for each in states.values())
    served = serves or any(each.trial.served for each in states.values() if each.trial)
    waiting = [name for name, each in states.items() if plan.driver_waits(each)]
    served = served and set(stages.values()) != {"current"}
    begins = "upgrade" in stages.values() and not any(each.trial for each in states.values())
    return {"stages": stages, "begins": begins, "serves": serves, "served": served, "waiting": waiting}
