# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report the findings of a verification and the differences between nodes.

Compares what ``cluster_verify_info`` and ``cluster_verify_probe`` returned on each node, registered as
``verify_node`` and ``verify_probe``, with the checks. A node without these results is a finding.
The tags of the run select the groups of checks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report as benchmark_report
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import report as html_report_report
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report, schema
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.html_page import rendered

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``nodes``: The nodes of the cluster.
    ``fail_on``: The least severity for ``problem``.
    ``waivers``: The reasons by ID of the findings that do not count.
    ``page``: Whether to return the report as an HTML page too.
    ``cluster``: The cluster's name on the page; empty for the name of the inventory's folder.
    ``quick``: Whether slow checks were left out.
    ``groups``: Groups of checks; empty for those that the tags of the run select.
    ``records``: The folder on the controller with golden results and benchmarks for the page.
    """

    nodes: Sequence[str]
    fail_on: str = field(metadata={"choices": ["error", "warning", "never"]})
    waivers: Mapping[str, Any] = field(default_factory=dict)
    page: bool = False
    cluster: str = ""
    quick: bool = False
    records: str = field(default="", metadata={"type": "path"})
    groups: Sequence[str] = ()


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> Values:
    """Return {lines, json_lines, problem, page}."""
    read, probed = (step.of_nodes(variables, given.nodes, name, {}) for name in ("verify_node", "verify_probe"))
    known = report.cluster(read, probed, time.time())
    waivers = {name: str(reason or "") for name, reason in given.waivers.items()}
    tags = variables["ansible_run_tags"], variables["ansible_skip_tags"]
    groups = given.groups or schema.groups(*tags)
    found = report.report(known, groups, given.fail_on, waivers)
    found["problem"] = report.problem(found["worst"], given.fail_on) if found.pop("failed") else ""
    if given.page:
        records = _records(step, variables, given.records)
        cluster = given.cluster or Path(variables.get("inventory_dir") or "").name or "without a name"
        page = html_report_report.page(known, groups, waivers, records)
        found["page"] = rendered({**page, "cluster": cluster, "quick": given.quick})
    # The page is longer than all other output of a run with -v.
    return {"changed": False, **found, "_ansible_verbose_override": True}


def _records(step: Decision, variables: Mapping[str, Any], folder: str) -> Values:
    """Return the last golden result, the newest benchmark of each model, and the last matrix."""
    files = Files(step._loader, step._templar, variables)
    paths = benchmark_report.newest(files.named(f"{folder}/benchmarks", "*.json"))
    return {
        "golden": files.text(f"{folder}/golden_result.json"),
        "benchmarks": files.texts(paths),
        "matrix": files.text(f"{folder}/benchmark_all.json"),
    }
