# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the rails and the runtime to probe, and the report of a verification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def verification_rails(nodes: Sequence[Any], name: str) -> dict[str, Any]:
    """Return the options {rails, mtu} of fabric_probe for a node."""
    from ansible_collections.gb10.cluster.plugins.module_utils.verify import report

    return report.rails(plain_data(nodes), str(name))


def verification_probe(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option of vllm_gpu_probe for a node's runtime: {python}, {container}, or {} without a known one."""
    from ansible_collections.gb10.cluster.plugins.module_utils.verify import kernels

    return kernels.probe(plain_data(facts))


def verification_report(
    nodes: Sequence[Any], groups: Sequence[str], fail_on: str, waivers: Mapping[str, Any]
) -> dict[str, Any]:
    """Return {lines, json_lines, worst, failed}."""
    from ansible_collections.gb10.cluster.plugins.module_utils.verify import report

    reasons = {name: str(reason or "") for name, reason in plain_data(waivers).items()}
    return report.report(plain_data(nodes), plain_data(groups), str(fail_on), reasons)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "verification_probe": verification_probe,
            "verification_rails": verification_rails,
            "verification_report": verification_report,
        }
