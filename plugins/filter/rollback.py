# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: records of launches that answered, and the rollback to one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def launch_start(plan: Fact) -> dict[str, Any]:
    """Return the data to verify this launch; see module_utils/rollback/record.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

    return record.start(typed_plan(plan))


def launch_content(plan: Fact, launches: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of this launch's record. ``launches``: node -> launch of the module launch_record_info."""
    from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

    return record.content(typed_plan(plan), plain_data(launches))


def launch_id(plan: Fact, launches: Mapping[str, Any]) -> str:
    """Return the ID of this launch's record. ``launches``: as for launch_content."""
    from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

    return record.digest(launch_content(plan, launches))


def launch_findings(plan: Fact) -> list[str]:
    """Return the findings of the rules about this launch, for its record."""
    from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

    return record.findings(typed_plan(plan))


def rollback_decision(nodes: Sequence[Any]) -> dict[str, Any]:
    """Return {failed, start, why_not} of a launch on all nodes; see module_utils/rollback/plan.py for its nodes."""
    from ansible_collections.gb10.cluster.plugins.module_utils.rollback import plan

    return plan.judge(plain_data(nodes))


def rollback_message(verdict: Mapping[str, Any], model: str, allowed: bool, back: str = "") -> str:
    """Return the error message for a failed launch."""
    from ansible_collections.gb10.cluster.plugins.module_utils.rollback import plan

    return plan.message(plain_data(verdict), str(model), bool(allowed), str(back))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "launch_content": launch_content,
            "launch_findings": launch_findings,
            "launch_id": launch_id,
            "launch_start": launch_start,
            "rollback_decision": rollback_decision,
            "rollback_message": rollback_message,
        }
