# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the module netplan_apply for the plan's node."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan


@dataclass(frozen=True)
class NetplanSettings:
    """The variables of the role qsfp_netplan."""

    qsfp_netplan_state: str
    qsfp_netplan_apply_timeout: int
    qsfp_netplan_confirm_timeout: int


def options(plan: Plan, settings: NetplanSettings, content: str) -> dict[str, Any]:
    """Return the module's options. ``content``: the text of the planned netplan file."""
    return {
        "state": settings.qsfp_netplan_state,
        "content": content,
        "files": dict(plan.node.files),
        "rails": [asdict(rail) for rail in plan.node.rails],
        "mtu": plan.mtu,
        "takeover": plan.takeover,
        "timeout": settings.qsfp_netplan_apply_timeout,
        "confirm_timeout": settings.qsfp_netplan_confirm_timeout,
        "probe": settings.qsfp_netplan_state == "present",
    }
