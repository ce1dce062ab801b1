# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of os_update_plan, which documents it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan, report
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import State
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Decides from the states of the nodes, on the controller."""

    planned = False

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {lines, stages} as the module documents it, or a failure with every problem."""
        arguments = self.arguments(
            units={"type": "dict", "required": True},
            gateways={"type": "list", "elements": "str", "default": []},
            reports={"type": "str", "default": ""},
            results={"type": "str", "required": True},
            expected={"type": "list", "elements": "str", "choices": list(plan.STAGES), "default": list(plan.STAGES)},
            without_way_back={"type": "bool", "default": False},
            again={"type": "bool", "default": False},
            firmware={"type": "bool", "default": False},
            kernel_options={"type": "list", "elements": "str", "choices": list(plan.OFFERED), "default": []},
            refuse={"type": "bool", "default": True},
        )
        units, again = arguments["units"], arguments["again"]
        nodes = [node for unit in units.values() for node in unit]
        read = self.of_nodes(variables, nodes, arguments["results"], {})
        states = _states(read, arguments["firmware"], arguments["kernel_options"])
        found = report.refused(states, arguments["without_way_back"], again)
        found += report.unexpected(states, arguments["expected"], again)
        gateways = self.of_nodes(variables, arguments["gateways"], arguments["reports"], {})
        of_units = {unit: {node: states[node] for node in nodes if node in states} for unit, nodes in units.items()}
        found += [problem for unit in of_units.values() for problem in report.unequal(unit, again)]
        lines = report.announced(of_units, again, gateways)
        numbered = [f"  {number}. {problem}" for number, problem in enumerate(found, 1)]
        problem = "\n".join(["The update does not go on.", *numbered]) if found else ""
        if problem and arguments["refuse"]:
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
