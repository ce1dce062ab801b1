# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report a benchmark, and compare it with earlier ones.

Makes the document of a benchmark of the fact ``gb10_plan``, and compares it with the last good one of the same model
and distribution.
A failed request, and a speed below the accepted one, are findings, not errors of the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network, report
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The newest earlier documents of a model that are compared.
_MOST = 20


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``directory``: The folder on the controller with earlier documents.
    ``bandwidth_file``: The file on the controller with the last bandwidth of NCCL. It need not exist.
    ``mode``: The mode of the runs.
    ``date``: ``benchmark_runs#module:date``.
    ``seed``: ``benchmark_runs#module:seed``.
    ``tolerance``: The accepted loss of speed; 0.1 is ten percent.
    ``status``: The variable of each node with the registered result of ``cluster_status_info``.
    ``rtts``: The round-trip times that ``fabric_probe`` returned.
    ``measured``: The registered results of a loop with ``vllm_benchmark`` over the runs.
    """

    directory: str = field(metadata={"type": "path"})
    bandwidth_file: str = field(metadata={"type": "path"})
    mode: str
    date: str
    seed: int
    tolerance: float
    status: str
    rtts: Sequence[Mapping[str, Any]] = ()
    measured: Sequence[Mapping[str, Any]]


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {document, file, path, lines, best, findings}."""
    plan, files = step.plan(variables), Files(step._loader, step._templar, variables)
    states = step.of_nodes(variables, [node.name for node in plan.nodes], given.status, {})
    facts = {
        "date": given.date,
        "mode": given.mode,
        "seed": given.seed,
        "drivers": {node: state.get("driver", "") for node, state in states.items()},
        "network": network.figures(given.rtts, files.text(given.bandwidth_file) or ""),
    }
    runs = [{**each["item"], **{key: each[key] for key in report.MEASURED}} for each in given.measured]
    found, directory = report.document(plan, facts, runs), given.directory
    paths = files.named(directory, f"{report.stem(plan.served_model_name)}-*.json")[-_MOST:]
    old, notes = report.earlier(files.texts(paths), found)
    findings = list(map(str, report.findings(found, old, given.tolerance)))
    name = report.file_name(found)
    return {
        "changed": False,
        "document": {**found, "findings": findings},
        "file": name,
        "path": f"{directory}/{name}",
        "lines": [*report.lines(found, old), *notes],
        "best": report.best(found),
        "findings": findings,
        # The document is longer than all other output of a run with -v.
        "_ansible_verbose_override": True,
    }
