# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of field_report, which documents it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.report import stem
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import failure, io_words, measurement, report
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verify_report
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: Each node's results: the state before a measurement, the failures, and the evidence.
_STATUS, _PROBLEMS, _EVIDENCE = "__field_report_status", "__field_report_problems", "__field_report_evidence"
Values = dict[str, Any]


class ActionModule(Decision):
    """Combines what all nodes registered, on the controller, which has the records."""

    # The playbook gives the role its nodes and problems.
    planned = False

    def decide(self, variables: dict[str, Any]) -> Values:
        """Return {document, lines}, for a measurement {serves, steps}, or a failure with its reason."""
        arguments = self.arguments(
            purpose={"type": "str", "choices": ["report", "measure"], "default": "report"},
            nodes={"type": "list", "elements": "str", "required": True},
            problems={"type": "list", "elements": "dict", "default": []},
            names={"type": "dict", "default": {}},
            model={"type": "str", "default": ""},
            served={"type": "str", "default": ""},
            records={"type": "path", "default": ""},
        )
        if arguments["purpose"] == "measure":
            return self._measurement(self.plan(variables), variables)
        plan = self.plan(variables) if self._value(variables, "gb10_plan") else None
        found = self._report(plan, arguments, variables)
        # The report is longer than all other output of a run with -v.
        return {"changed": False, **found, "_ansible_verbose_override": True}

    def _measurement(self, plan: Plan, variables: Mapping[str, Any]) -> Values:
        names = [node.name for node in plan.nodes]
        states = self.of_nodes(variables, names, _STATUS, {})
        runs = measurement.serves(states.values())
        installed = {name: each.get("installed", {}) for name, each in self.observed(variables, names).items()}
        recorded = measurement.current(plan, installed)
        if reason := measurement.refusal(plan, recorded, runs, states[plan.head.name].get("api") or {}):
            return {"failed": True, "msg": reason}
        return {"changed": False, "serves": runs, "steps": measurement.steps(runs)}

    def _report(self, plan: Plan | None, arguments: Values, variables: Mapping[str, Any]) -> Values:
        names = [node.name for node in plan.nodes] if plan else arguments["nodes"]
        failed = self.of_nodes(variables, names, _PROBLEMS, []).values()
        problems = arguments["problems"] + [problem for each in failed for problem in each]
        problems = [problem for number, problem in enumerate(problems) if problem not in problems[:number]]
        users = dict.fromkeys(self._users(variables, names), "USER")
        site = report.Site(problems, arguments["model"], arguments["served"], users | arguments["names"])
        today, records = datetime.now(UTC).strftime("%Y-%m-%d"), self._records(plan, arguments["records"], variables)
        hosts, public = self.of_nodes(variables, names, "ansible_host", ""), io_words.public()
        try:
            document = report.document(plan, self._nodes(variables, names), hosts, records, today, public, site)
        except ValueError as error:
            return {"failed": True, "msg": str(error)}
        tasks = "; ".join(dict.fromkeys(problem["task"] for problem in problems))
        return {"document": document, "lines": [f"The report has the errors of: {tasks}"] if tasks else []}

    def _nodes(self, variables: Mapping[str, Any], names: Sequence[str]) -> list[Values]:
        read, probed, evidence = (
            self.of_nodes(variables, names, name, {}) for name in ("verify_node", "verify_probe", _EVIDENCE)
        )
        return [{**node, "evidence": evidence[node["name"]]} for node in verify_report.nodes(read, probed, time.time())]

    def _users(self, variables: Mapping[str, Any], names: Sequence[str]) -> list[str]:
        logins = self.of_nodes(variables, names, "ansible_user", "").values()
        own = [os.environ.get("USER"), self._value(variables, "gb10_service_user")]
        return [str(user) for user in (*logins, *own) if user]

    def _records(self, plan: Plan | None, folder: str, variables: Mapping[str, Any]) -> report.Records:
        """Return the last results. The callback of this collection writes the failures of all clusters."""
        files, inventory = Files(self._loader, self._templar, variables), variables.get("inventory_dir") or ""
        named = files.named(f"{folder}/benchmarks", f"{stem(plan.served_model_name)}-*.json")[-1:] if plan else []
        return report.Records(
            benchmark=next(iter(files.texts(named).values()), ""),
            golden=files.text(f"{folder}/golden_result.json") or "",
            bandwidth=files.text(f"{folder}/nccl_bandwidth.json") or "",
            failures=files.text(f"{inventory}/.gb10/{failure.FILE}") or "",
        )

    def _value(self, variables: Mapping[str, Any], name: str) -> Any:
        return self._templar.template(variables.get(name))
