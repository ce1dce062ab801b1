# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the choice of NCCL, and its bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def nccl_choice(plan: Fact, libraries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the NCCL choice after installation; ``libraries`` are nccl_info's results by node, null if missing."""
    from ansible_collections.gb10.cluster.plugins.module_utils.nccl import choice

    given, found = typed_plan(plan), {name: library or {} for name, library in plain_data(libraries).items()}
    nodes = [choice.Node(node.name, node.capability or "", found.get(node.name)) for node in given.nodes]
    return choice.choose(given.nccl.wanted, given.nccl.cluster, nodes).facts()


def bandwidth_runs(plan: Fact, backend: str, port: int) -> list[dict[str, Any]]:
    """Return the runs that measure the bandwidth between nodes, as {name, environment} for the plan's node."""
    from ansible_collections.gb10.cluster.plugins.module_utils.nccl import bandwidth

    return bandwidth.runs(typed_plan(plan), str(backend), int(port))


def bandwidth_report(results: Mapping[str, Any], plan: Fact, backend: str, expected: float) -> dict[str, Any]:
    """Return {lines, expected, findings, record}: the measurements by the run's name, and those that are too slow."""
    from ansible_collections.gb10.cluster.plugins.module_utils.nccl import bandwidth

    measured, given = plain_data(results), typed_plan(plan)
    least = bandwidth.expected(given, str(backend), float(expected))
    found = bandwidth.findings(measured, least)
    return {
        "lines": bandwidth.lines(measured),
        "expected": least,
        "findings": list(map(str, found)),
        "record": bandwidth.record(measured, given, str(backend), found),
    }


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "nccl_choice": nccl_choice,
            "bandwidth_runs": bandwidth_runs,
            "bandwidth_report": bandwidth_report,
        }
