# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: access to the ports of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, typed_plan


def firewall_access(plan: Fact) -> dict[str, Any]:
    """Return {peers, peer_ports, api_port, api_clients}: module peer_firewall's options for the plan's node."""
    from ansible_collections.gb10.cluster.plugins.module_utils.firewall.plan import of_plan

    return of_plan(typed_plan(plan))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"firewall_access": firewall_access}
