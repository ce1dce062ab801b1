# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of nccl_bandwidth, which documents it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import bandwidth
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

_PREFIX = "nccl_sm121_build_bandwidth_"


class ActionModule(Decision):
    """Plans the measurements between the nodes, and evaluates their results, on the controller."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {runs, unit}, or with O(measured) {lines, expected, findings, record}."""
        measured = self.arguments(measured={"type": "dict"})["measured"]
        plan, settings = self.plan(variables), self._settings(variables)
        if measured is None:
            runs = bandwidth.runs(plan, settings.backend, settings.port)
            commands = [
                {"name": run["name"], "argv": bandwidth.argv(plan, run["environment"], settings)} for run in runs
            ]
            return {"changed": False, "runs": commands, "unit": bandwidth.UNIT}
        least = bandwidth.expected(plan, settings.backend, settings.expected)
        found = [*bandwidth.findings(measured, least), *bandwidth.delays(measured, plan, settings.backend)]
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {
            "changed": False,
            "lines": bandwidth.lines(measured),
            "expected": least,
            "findings": list(map(str, found)),
            "record": {**bandwidth.record(measured, plan, settings.backend, found), "date": date},
        }

    def _settings(self, variables: Mapping[str, Any]) -> bandwidth.BandwidthSettings:
        """Return the variables of the role's entry point in the types of its specification."""
        options = argument_specs.read("nccl_sm121_build")["bandwidth"]["options"]
        names = [f"{_PREFIX}{each.name}" for each in fields(bandwidth.BandwidthSettings)]
        given = {name: self.variable(variables, name) for name in names if name in variables}
        typed = ArgumentSpecValidator({name: options[name] for name in names}).validate(given).validated_parameters
        found = {name.removeprefix(_PREFIX): value for name, value in typed.items()}
        return load.load(bandwidth.BandwidthSettings, found, "nccl_bandwidth")
