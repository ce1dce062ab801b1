# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the bandwidth measurements between the nodes, and evaluate their results.

Returns the measurements between the nodes of the fact ``gb10_plan``, over all devices together and over each. Every
node has the same ones. The variables of the entry point ``bandwidth`` of the role ``nccl_sm121_build`` define them.
With ``measured``, compares the largest messages with the expected bandwidth.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import bandwidth
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

_PREFIX = "nccl_sm121_build_bandwidth_"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``measured``: The output of each measurement by its name.
    """

    measured: Mapping[str, Any] | None = None


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {runs, unit}, or with ``measured`` {lines, expected, findings, record}."""
    plan, settings = step.plan(variables), _settings(step, variables)
    if given.measured is None:
        runs = bandwidth.runs(plan, settings.backend, settings.port)
        commands = [{"name": run["name"], "argv": bandwidth.argv(plan, run["environment"], settings)} for run in runs]
        return {"changed": False, "runs": commands, "unit": bandwidth.UNIT}
    measured = bandwidth.measured(given.measured)
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


def _settings(step: Decision, variables: Mapping[str, Any]) -> bandwidth.BandwidthSettings:
    """Return the variables of the role's entry point in the types of its specification."""
    options = argument_specs.read("nccl_sm121_build")["bandwidth"]["options"]
    names = [f"{_PREFIX}{each.name}" for each in fields(bandwidth.BandwidthSettings)]
    given = {name: step.variable(variables, name) for name in names if name in variables}
    typed = ArgumentSpecValidator({name: options[name] for name in names}).validate(given).validated_parameters
    found = {name.removeprefix(_PREFIX): value for name, value in typed.items()}
    return load.load(bandwidth.BandwidthSettings, found, "nccl_bandwidth")
