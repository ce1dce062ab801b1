# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: records of launches that answered, and the rollback to one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def rollback_message(verdict: Mapping[str, Any], model: str, allowed: bool, back: str = "") -> str:
    """Return the error message for a failed launch."""
    from ansible_collections.gb10.cluster.plugins.module_utils.rollback import plan

    return plan.message(plain_data(verdict), str(model), bool(allowed), str(back))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "rollback_message": rollback_message,
        }
