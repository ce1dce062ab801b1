# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the module peer_firewall for the plan's node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan


@dataclass(frozen=True)
class FirewallSettings:
    """The roles' variables that the rules depend on."""

    peer_firewall_enabled: bool
    peer_firewall_open_ports: Sequence[str]
    peer_firewall_gateway_port: int
    peer_firewall_trusted_interfaces: Sequence[str]
    peer_firewall_confirm_timeout: int
    monitoring_enabled: bool
    monitoring_clients: Sequence[str]
    monitoring_port: int


def options(plan: Plan, settings: FirewallSettings, monitored: Sequence[int], local: bool) -> dict[str, Any]:
    """Return the module's options, except for the client.

    ``monitored``: the ports of the node's metrics. ``local``: whether Ansible runs on the node.
    """
    gateway = [f"{settings.peer_firewall_gateway_port}/tcp"] if settings.peer_firewall_gateway_port else []
    others = [node.name for node in plan.nodes if node.name != plan.node.name]
    return {
        **firewall_plan.of_plan(plan),
        "state": "present" if settings.peer_firewall_enabled else "absent",
        "open_ports": [*settings.peer_firewall_open_ports, *gateway],
        "interfaces": list(settings.peer_firewall_trusted_interfaces),
        "monitoring_ports": list(monitored) if settings.monitoring_enabled else [],
        "monitoring_clients": list(settings.monitoring_clients),
        "confirm_timeout": settings.peer_firewall_confirm_timeout,
        # Where Ansible itself runs, no connection of this run verifies access, so another node opens one.
        "witness": others[0] if local and others else "",
    }
