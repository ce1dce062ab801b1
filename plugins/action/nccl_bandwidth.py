# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of nccl_bandwidth, which documents it."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import bandwidth
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Plans the measurements between the nodes, and evaluates their results, on the controller."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return {runs, unit}, or with O(measured) {lines, expected, findings, record}."""
        super().run(tmp, task_vars)
        arguments = self.arguments(
            backend={"type": "str", "required": True},
            port={"type": "int", "required": True},
            bytes={"type": "int", "required": True},
            timeout={"type": "int", "required": True},
            expected={"type": "float", "required": True},
            measured={"type": "dict"},
        )
        plan, measured = self.plan(task_vars or {}), arguments["measured"]
        settings = load.chosen(bandwidth.BandwidthSettings, arguments, "nccl_bandwidth")
        if measured is None:
            runs = bandwidth.runs(plan, settings.backend, settings.port)
            commands = [
                {"name": run["name"], "argv": bandwidth.argv(plan, run["environment"], settings)} for run in runs
            ]
            return {"changed": False, "runs": commands, "unit": bandwidth.UNIT}
        least = bandwidth.expected(plan, settings.backend, settings.expected)
        found = bandwidth.findings(measured, least)
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {
            "changed": False,
            "lines": bandwidth.lines(measured),
            "expected": least,
            "findings": list(map(str, found)),
            "record": {**bandwidth.record(measured, plan, settings.backend, found), "date": date},
        }
