# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the last working launch, and the rollback to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.lazy import Core, plain_data

launch = Core("launch.argv")
rollback = Core("rollback.plan")


def last_good_record(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that a rollback to this launch needs; see module_utils/rollback/plan.py."""
    return rollback.start(plain_data(plan))


def rollback_decision(nodes: Sequence[Any]) -> dict[str, Any]:
    """Return {failed, start, why_not} of a launch on all nodes; see module_utils/rollback/plan.py for its nodes."""
    return rollback.judge(plain_data(nodes))


def rollback_message(verdict: Mapping[str, Any], model: str, allowed: bool, back: str = "") -> str:
    """Return the error message for a failed launch."""
    return rollback.message(plain_data(verdict), str(model), bool(allowed), str(back))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "last_good_record": last_good_record,
            "rollback_decision": rollback_decision,
            "rollback_message": rollback_message,
        }
