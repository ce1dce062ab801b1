# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: results of vLLM's patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def patch_report(results: Mapping[str, Any]) -> str:
    """Return the problems in the nodes' results of vllm_patch, by the node's name, "" if there are none."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
    from ansible_collections.gb10.cluster.plugins.module_utils.patch import checks

    problems = checks.check(plain_data(results))
    return report(problems) if problems else ""


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"patch_report": patch_report}
