# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the module peer_firewall for the plan's node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

#: Source: NCCL, documentation of the RAS subsystem.
NCCL_RAS_PORT = 28028


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
    api = plan.node.head and not api_access.loopback(plan.api_host)
    return {
        "state": "present" if settings.peer_firewall_enabled else "absent",
        "peers": [{"interface": interface, "address": address} for interface, address in _peers(plan)],
        "peer_ports": needs(plan),
        "api_port": plan.api_port if api else 0,
        "api_clients": list(plan.api_clients) if api else [],
        "wake_port": plan.rest.port if api and plan.rest.after else 0,
        "open_ports": [*settings.peer_firewall_open_ports, *gateway],
        "interfaces": list(settings.peer_firewall_trusted_interfaces),
        "monitoring_ports": list(monitored) if settings.monitoring_enabled else [],
        "monitoring_clients": list(settings.monitoring_clients),
        "served_ports": _served(plan),
        "service_user": plan.user,
        "confirm_timeout": settings.peer_firewall_confirm_timeout,
        # Where Ansible itself runs, no connection of this run verifies access, so another node opens one.
        "witness": others[0] if local and others else "",
    }


def _peers(plan: Plan) -> list[tuple[str, str]]:
    """Return (incoming interface, address) of all other nodes, on every rail and on the cluster's network."""
    node = plan.node
    found = [(rail.interface, address) for rail in node.rails for address in rail.peers.values()]
    found += [(node.interface, other.address) for other in plan.nodes if other.name != node.name]
    return sorted(set(found))


def _served(plan: Plan) -> list[str]:
    """Return the ports on which the ranks of the plan's node listen, as nft writes them."""
    ports = [plan.api_port] if plan.node.head else []
    ports += [plan.rest.port] if plan.node.head and plan.rest.after else []
    ports += [plan.own_fallback.port] if plan.own_fallback else []
    ports += [NCCL_RAS_PORT] if len(plan.nodes) > 1 else []
    if plan.by_ray and plan.node.head:
        ports.append(launch_argv.RAY_DASHBOARD_PORT)
    found = [str(port) for port in ports]
    return sorted({*found, *(str(port) for port in needs(plan).values())})


def needs(plan: Plan) -> dict[str, Any]:
    """Return the fixed ports that peers use, by name. In addition, NCCL, Gloo and vLLM use ephemeral ports."""
    node = plan.node
    if plan.by_ray:
        first, last = launch_argv.RAY_WORKER_PORTS
        fixed = {f"Ray's {name}": port for name, port in launch_argv.ray_ports(plan.ray_port, node.head).items()}
        return {**fixed, "Ray's workers": f"{first}-{last}"}
    meeting = node.head and len(plan.nodes) > 1
    return {"rendezvous": plan.rendezvous_port, "the ranks' end": plan.rendezvous_port + 1} if meeting else {}
