# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of benchmark_matrix, which documents it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import BenchmarkSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data

#: Each node's registered results: its copies, the part of the run that failed last, and on the head the last report.
_COPIES, _FAILED, _REPORT = "__benchmark_all_copies", "__benchmark_all_failed", "__benchmark_model_report"
#: The variables of the role benchmark_model on which a result depends.
_SETTINGS = ("mode", "data", "speed_bench", "concurrencies", "input_tokens", "output_tokens", "timeout")
Values = dict[str, Any]


class ActionModule(Decision):
    """Keeps the state of a run over several models, from one registered result to the next."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the matrix after a step, as the module documents it, or a failure with its reason."""
        steps = {
            "find": self._find,
            "list": self._list,
            "plan": self._plan,
            "begin": self._begin,
            "add": self._add,
            "finish": self._finish,
            "return": self._return,
        }
        arguments = self.arguments(
            step={"type": "str", "choices": list(steps), "required": True},
            matrix={"type": "dict", "default": {}},
            models={"type": "list", "elements": "str", "default": []},
            name={"type": "str", "default": ""},
            part={"type": "str", "default": ""},
            path={"type": "path", "default": ""},
            restart={"type": "bool", "default": False},
        )
        found = steps[arguments["step"]](arguments, variables)
        # The matrix is longer than all other output of a run with -v.
        return {"changed": False, **arguments["matrix"], **found, "_ansible_verbose_override": True}

    def _find(self, _arguments: Values, variables: Mapping[str, Any]) -> Values:
        """Return the folders on the node that have the last file of a copy."""
        folders = self._folders(variables).values()
        options = {"paths": list(dict.fromkeys(folders)), "patterns": ["gb10-model.json"]}
        found = self.module(options, variables, "ansible.builtin.find")
        if "files" not in found:
            return found
        return {"copies": [os.path.dirname(file["path"]) for file in found["files"]]}

    def _list(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        plan, date = self.plan(variables), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        results = self.of_nodes(variables, [node.name for node in plan.nodes], _COPIES, {}).values()
        copies = [folder for result in results for folder in result.get("copies", ())]
        return matrix.start(plan.model, date, arguments["models"], self._folders(variables), copies)

    def _plan(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        inputs, plan = self._settings(variables), self.plan(variables)
        settings = BenchmarkSettings(**{name: inputs[f"benchmark_model_{name}"] for name in _SETTINGS}, seed=0)
        reason = self._problem(arguments, variables)
        return matrix.planned(arguments["matrix"], matrix.candidate(plan, arguments["name"], settings, reason))

    def _begin(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        state = arguments["matrix"]
        if refusal := matrix.refusal(state["candidates"], state["chosen"]):
            return {"failed": True, "msg": refusal}
        text = Files(self._loader, self._templar, variables).text(arguments["path"]) or ""
        return matrix.begun(state, text, arguments["restart"])

    def _add(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        state, head = arguments["matrix"], self.plan(variables).head.name
        (candidate,) = (each for each in state["due"] if each["name"] == arguments["name"])
        report = self.of_nodes(variables, [head], _REPORT, {})[head]
        found, file, reason = report.get("document", {}), report.get("file", ""), self._problem(arguments, variables)
        return {"record": matrix.added(state["record"], candidate, found, file, reason)}

    def _finish(self, arguments: Values, _variables: Mapping[str, Any]) -> Values:
        return matrix.finished(arguments["matrix"]["record"])

    def _return(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        reason = self._problem(arguments, variables)
        return {"failed": True, "msg": matrix.not_back(arguments["matrix"]["served"], reason)} if reason else {}

    def _problem(self, arguments: Values, variables: Mapping[str, Any]) -> str:
        names = [node.name for node in self.plan(variables).nodes]
        return matrix.problem(self.of_nodes(variables, names, _FAILED, {}), arguments["part"])

    def _folders(self, variables: Mapping[str, Any]) -> dict[str, str]:
        return matrix.folders(self._settings(variables)["gb10_models"], self.plan(variables).root)

    def _settings(self, variables: Mapping[str, Any]) -> Values:
        """Return the settings of all roles, with their defaults."""
        found: Values = plain_data(self._templar.template(variables["gb10_inputs"]))["settings"]
        return found
