# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep the results of benchmarks of several models.

Each step returns the matrix of the step before with its own results. The role ``benchmark_all#role`` registers it,
and writes ``record`` on the controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
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
#: In their order.
STEPS = ("find", "list", "plan", "begin", "add", "finish", "return")
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``step``: find finds the complete copies of models on the node, and list the models of ``models`` or of these
    copies. plan adds a model with its plan or the reason why it has none. begin refuses models without a plan, and
    continues an interrupted run. add adds the result of a model, and finish ends the run. return fails if the first
    model does not serve again.
    ``matrix``: The registered result of the step before.
    ``models``: The models to measure, for ``step: list``; empty for those with a complete copy.
    ``name``: The model, for ``step: plan`` and ``step: add``.
    ``part``: The part of the run whose failure counts for this step. Each node has ``part`` and ``reason`` of its
    last failure in the fact ``__benchmark_all_failed``.
    ``path``: The file on the controller with the earlier record, for ``step: begin``. It need not exist.
    ``restart``: Whether to measure models again that have a result of an interrupted run, for ``step: begin``.
    """

    step: str = field(metadata={"choices": STEPS})
    matrix: Mapping[str, Any] = field(default_factory=dict)
    models: Sequence[str] = ()
    name: str = ""
    part: str = ""
    path: str = field(default="", metadata={"type": "path"})
    restart: bool = False


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {copies, models, served, left_out, due, record, lines, failed_models}, or a failure with its reason."""
    steps = dict(zip(STEPS, (_find, _list, _plan, _begin, _add, _finish, _return), strict=True))
    found = steps[given.step](step, given, variables)
    # The matrix is longer than all other output of a run with -v.
    return {"changed": False, **given.matrix, **found, "_ansible_verbose_override": True}


def _find(step: Decision, _given: Inputs, variables: Mapping[str, Any]) -> Values:
    """Return the folders on the node that have the last file of a copy."""
    folders = _folders(step, variables).values()
    options = {"paths": list(dict.fromkeys(folders)), "patterns": ["gb10-model.json"]}
    found = step.module(options, variables, "ansible.builtin.find")
    if "files" not in found:
        return found
    return {"copies": [str(Path(file["path"]).parent) for file in found["files"]]}


def _list(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> Values:
    plan, date = step.plan(variables), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    results = step.of_nodes(variables, [node.name for node in plan.nodes], _COPIES, {}).values()
    copies = [folder for result in results for folder in result.get("copies", ())]
    return matrix.start(plan.model, date, given.models, _folders(step, variables), copies)


def _plan(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> Values:
    inputs, plan = _settings(step, variables), step.plan(variables)
    settings = BenchmarkSettings(**{name: inputs[f"benchmark_model_{name}"] for name in _SETTINGS}, seed=0)
    reason = _problem(step, given, variables)
    return matrix.planned(given.matrix, matrix.candidate(plan, given.name, settings, reason))


def _begin(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> Values:
    state = given.matrix
    if refusal := matrix.refusal(state["candidates"], state["chosen"]):
        return {"failed": True, "msg": refusal}
    text = Files(step._loader, step._templar, variables).text(given.path) or ""
    return matrix.begun(state, text, given.restart)


def _add(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> Values:
    state, head = given.matrix, step.plan(variables).head.name
    (candidate,) = (each for each in state["due"] if each["name"] == given.name)
    report = step.of_nodes(variables, [head], _REPORT, {})[head]
    found, file, reason = report.get("document", {}), report.get("file", ""), _problem(step, given, variables)
    return {"record": matrix.added(state["record"], candidate, found, file, reason)}


def _finish(_step: Decision, given: Inputs, _variables: Mapping[str, Any]) -> Values:
    return matrix.finished(given.matrix["record"])


def _return(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> Values:
    reason = _problem(step, given, variables)
    return {"failed": True, "msg": matrix.not_back(given.matrix["served"], reason)} if reason else {}


def _problem(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> str:
    names = [node.name for node in step.plan(variables).nodes]
    return matrix.problem(step.of_nodes(variables, names, _FAILED, {}), given.part)


def _folders(step: Decision, variables: Mapping[str, Any]) -> dict[str, str]:
    return matrix.folders(_settings(step, variables)["gb10_models"], step.plan(variables).root)


def _settings(step: Decision, variables: Mapping[str, Any]) -> Values:
    """Return the settings of all roles, with their defaults."""
    found: Values = plain_data(step._templar.template(variables["gb10_inputs"]))["settings"]
    return found
