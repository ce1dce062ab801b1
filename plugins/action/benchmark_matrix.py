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
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import Settings
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data

#: What each node registers: its copies, the part of the run that failed last, and on the head the last report.
_COPIES, _FAILED, _REPORT = "__benchmark_all_copies", "__benchmark_all_failed", "__benchmark_model_report"
_PREFIX = "benchmark_model_"
Values = dict[str, Any]


class ActionModule(Decision):
    """Keeps the state of a run over several models, from one registered result to the next."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the matrix after a step, as the module documents it, or a failure with its reason."""
        super().run(tmp, task_vars)
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
        found = steps[arguments["step"]](arguments, task_vars or {})
        # The matrix is longer than all other output of a run with -v.
        return {"changed": False, **arguments["matrix"], **found, "_ansible_verbose_override": True}

    def _find(self, _arguments: Values, variables: Mapping[str, Any]) -> Values:
        """Return the folders on the node that have the last file of a copy."""
        folders = self._folders(variables).values()
        found = self._execute_module(
            module_name="ansible.builtin.find",
            module_args={"paths": list(dict.fromkeys(folders)), "patterns": ["gb10-model.json"]},
            task_vars=dict(variables),
        )
        if "files" not in found:
            failure: Values = found
            return failure
        return {"copies": [os.path.dirname(file["path"]) for file in found["files"]]}

    def _list(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        plan, chosen = self.plan(variables), arguments["models"]
        results = self.of_nodes(variables, [node.name for node in plan.nodes], _COPIES, {}).values()
        copies = [folder for result in results for folder in result.get("copies", ())]
        return {
            "served": plan.model,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "chosen": bool(chosen),
            "models": list(dict.fromkeys(chosen)) or matrix.stored(self._folders(variables), copies),
            "candidates": [],
            "left_out": [],
        }

    def _plan(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        inputs = self._settings(variables)
        names = ("mode", "concurrencies", "input_tokens", "output_tokens", "timeout")
        settings = Settings(**{name: inputs[_PREFIX + name] for name in names}, seed=0)
        problem = self._problem(arguments, variables)
        added = matrix.candidate(self.plan(variables), arguments["name"], settings, problem)
        candidates, chosen = [*arguments["matrix"]["candidates"], added], arguments["matrix"]["chosen"]
        return {"candidates": candidates, "left_out": [] if chosen else matrix.left_out(candidates)}

    def _begin(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        state = arguments["matrix"]
        if refusal := matrix.refusal(state["candidates"], state["chosen"]):
            return {"failed": True, "msg": refusal}
        candidates = [each for each in state["candidates"] if not each["problem"]]
        text = Files(self._loader, self._templar, variables).text(arguments["path"]) or ""
        record = matrix.begin(candidates, text, arguments["restart"], state["date"])
        lines = matrix.announcement(candidates, record, state["served"])
        return {"record": record, "due": matrix.due(candidates, record), "lines": lines}

    def _add(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        state, head = arguments["matrix"], self.plan(variables).head.name
        (candidate,) = (each for each in state["due"] if each["name"] == arguments["name"])
        report = self.of_nodes(variables, [head], _REPORT, {})[head]
        problem = self._problem(arguments, variables)
        record = matrix.added(state["record"], candidate, report.get("document", {}), report.get("file", ""), problem)
        return {"record": record}

    def _finish(self, arguments: Values, _variables: Mapping[str, Any]) -> Values:
        record = {**arguments["matrix"]["record"], "finished": True}
        return {
            "record": record,
            "lines": matrix.lines(record),
            "failed_models": [row["name"] for row in record["rows"] if row["problem"]],
        }

    def _return(self, arguments: Values, variables: Mapping[str, Any]) -> Values:
        if not (problem := self._problem(arguments, variables)):
            return {}
        message = f"{arguments['matrix']['served']} does not serve again: {problem}. Expected: the model that served"
        return {"failed": True, "msg": f"{message} before the benchmarks. Fix: run site.yml."}

    def _problem(self, arguments: Values, variables: Mapping[str, Any]) -> str:
        names = [node.name for node in self.plan(variables).nodes]
        return matrix.problem(self.of_nodes(variables, names, _FAILED, {}), arguments["part"])

    def _folders(self, variables: Mapping[str, Any]) -> dict[str, str]:
        return matrix.folders(self._settings(variables)["gb10_models"], self.plan(variables).root)

    def _settings(self, variables: Mapping[str, Any]) -> Values:
        """Return the settings of all roles, with their defaults."""
        found: Values = plain_data(self._templar.template(variables["gb10_inputs"]))["settings"]
        return found
