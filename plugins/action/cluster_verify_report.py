# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of cluster_verify_report, which documents it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report as benchmark_report
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import report as html_report_report
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report, schema
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.html_page import rendered

Values = dict[str, Any]


class ActionModule(Decision):
    """Compares what all nodes registered, on the controller, which has the records for the page."""

    def decide(self, variables: dict[str, Any]) -> Values:
        """Return {lines, json_lines, problem, page}."""
        arguments = self.arguments(
            nodes={"type": "list", "elements": "str", "required": True},
            fail_on={"type": "str", "choices": ["error", "warning", "never"], "required": True},
            waivers={"type": "dict", "default": {}},
            page={"type": "bool", "default": False},
            cluster={"type": "str", "default": ""},
            quick={"type": "bool", "default": False},
            records={"type": "path", "default": ""},
            groups={"type": "list", "elements": "str", "default": []},
        )
        nodes = self._nodes(variables, arguments["nodes"])
        waivers = {name: str(reason or "") for name, reason in arguments["waivers"].items()}
        tags = variables["ansible_run_tags"], variables["ansible_skip_tags"]
        groups = arguments["groups"] or schema.groups(*tags)
        found = report.report(nodes, groups, arguments["fail_on"], waivers)
        found["problem"] = report.problem(found["worst"], arguments["fail_on"]) if found.pop("failed") else ""
        if arguments["page"]:
            records = self._records(variables, arguments["records"])
            cluster = arguments["cluster"] or os.path.basename(variables.get("inventory_dir") or "") or "without a name"
            page = html_report_report.page(nodes, groups, waivers, records)
            found["page"] = rendered({**page, "cluster": cluster, "quick": arguments["quick"]})
        # The page is longer than all other output of a run with -v.
        return {"changed": False, **found, "_ansible_verbose_override": True}

    def _nodes(self, variables: Mapping[str, Any], names: Sequence[str]) -> list[Values]:
        read = self.of_nodes(variables, names, "verify_node", {})
        probed = self.of_nodes(variables, names, "verify_probe", {})
        return report.nodes(read, probed, time.time())

    def _records(self, variables: Mapping[str, Any], folder: str) -> Values:
        """Return the last golden result, the newest benchmark of each model, and the last matrix."""
        files = Files(self._loader, self._templar, variables)
        paths = benchmark_report.newest(files.named(f"{folder}/benchmarks", "*.json"))
        return {
            "golden": files.text(f"{folder}/golden_result.json"),
            "benchmarks": files.texts(paths),
            "matrix": files.text(f"{folder}/benchmark_all.json"),
        }
