# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make a report about a cluster without names, addresses and keys.

Combines the fact ``gb10_plan``, which may be empty, the results of the checks and the evidence of each node, and the
last results on the controller. Fails if identifying text is left.
Each node has registered ``verify_node``, ``verify_probe`` and the result of ``field_evidence`` as
``__field_report_evidence``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.report import stem
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import failure, io_words, measurement, report
from ansible_collections.gb10.cluster.plugins.module_utils.field_report.redact import ADDRESS
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verify_report
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: Each node's results: the state before a measurement, the failures, and the evidence.
_STATUS, _PROBLEMS, _EVIDENCE = "__field_report_status", "__field_report_problems", "__field_report_evidence"
Values = dict[str, Any]

PLANNED = False


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``purpose``: report returns the report. measure returns the steps of a measurement, and fails if it could not
    return to the present state. This needs the result of ``cluster_status_info`` of each node as
    ``__field_report_status``.
    ``nodes``: The nodes in their order, for a cluster without a plan.
    ``problems``: What failed before the report, each with ``task`` and ``text``.
    ``names``: Other names of the site, each with the word that replaces it.
    ``model``: The model of the inventory.
    ``served``: The name of the served model in the inventory.
    ``records``: The folder on the controller with the last golden result, NCCL's bandwidth and the benchmarks.
    """

    purpose: str = field(default="report", metadata={"choices": ["report", "measure"]})
    nodes: Sequence[str]
    problems: Sequence[Mapping[str, Any]] = ()
    names: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    served: str = ""
    records: str = field(default="", metadata={"type": "path"})


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> Values:
    """Return {document, lines}, for a measurement {serves, steps}, or a failure with its reason."""
    if given.purpose == "measure":
        return _measurement(step, step.plan(variables), variables)
    # The report is longer than all other output of a run with -v.
    return {"changed": False, **_report(step, given, variables), "_ansible_verbose_override": True}


def _measurement(step: Decision, plan: Plan, variables: Mapping[str, Any]) -> Values:
    names = [node.name for node in plan.nodes]
    states = step.of_nodes(variables, names, _STATUS, {})
    runs = measurement.serves(states.values())
    installed = {name: each.get("installed", {}) for name, each in step.observed(variables, names).items()}
    recorded = measurement.current(plan, installed)
    if reason := measurement.refusal(plan, recorded, runs, states[plan.head.name].get("api") or {}):
        return {"failed": True, "msg": reason}
    return {"changed": False, "serves": runs, "steps": measurement.steps(runs)}


def _report(step: Decision, given: Inputs, variables: Mapping[str, Any]) -> Values:
    plan = step.plan(variables) if step.variable(variables, "gb10_plan") else None
    names = [node.name for node in plan.nodes] if plan else given.nodes
    read, probed, found, failed, logins, hosts = (
        step.of_nodes(variables, names, name, default)
        for name, default in (
            *(("verify_node", {}), ("verify_probe", {}), (_EVIDENCE, {}), (_PROBLEMS, [])),
            *(("ansible_user", ""), ("ansible_host", "")),
        )
    )
    cluster = verify_report.cluster(read, probed, time.time())
    problems = [*given.problems, *(problem for each in failed.values() for problem in each)]
    problems = [problem for number, problem in enumerate(problems) if problem not in problems[:number]]
    users = (*logins.values(), os.environ.get("USER"), step.variable(variables, "gb10_service_user"))
    own = {
        **dict.fromkeys(hosts.values(), ADDRESS),
        **dict.fromkeys(map(str, filter(None, users)), "USER"),
        given.served: "MODEL",
    }
    records, today = _records(step, plan, given.records, variables), datetime.now(UTC).strftime("%Y-%m-%d")
    try:
        document = report.document(
            plan, cluster, found, records, today, io_words.public(), {**own, **given.names}, given.model, problems
        )
    except ValueError as error:
        return {"failed": True, "msg": str(error)}
    tasks = "; ".join(dict.fromkeys(problem["task"] for problem in problems))
    return {"document": document, "lines": [f"The report has the errors of: {tasks}"] if tasks else []}


def _records(step: Decision, plan: Plan | None, folder: str, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the last results. The callback of this collection writes the failures of all clusters."""
    files = Files(step._loader, step._templar, variables)
    benchmarks = files.named(f"{folder}/benchmarks", f"{stem(plan.served_model_name)}-*.json") if plan else []
    paths = {
        "benchmark": next(reversed(benchmarks), ""),
        "golden": f"{folder}/golden_result.json",
        "bandwidth": f"{folder}/nccl_bandwidth.json",
        "failures": f"{variables.get('inventory_dir') or ''}/.gb10/{failure.FILE}",
    }
    return {name: files.text(path) or "" for name, path in paths.items()}
