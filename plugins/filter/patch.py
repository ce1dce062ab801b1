# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: results of vLLM's patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.lazy import Core, plain_data

patch_checks = Core("patch.checks")
problem_types = Core("common.problems")


def patch_report(results: Mapping[str, Any]) -> str:
    """Return the problems in the nodes' results of vllm_patch, by the node's name, "" if there are none."""
    problems = patch_checks.check(plain_data(results))
    return problem_types.report(problems) if problems else ""


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"patch_report": patch_report}
