# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fabric as the values of its drawing: nodes, ports with a rail for each PCIe function, cables or networks.

The template fabric.svg.j2 of the role verify draws it. A ``state`` is a CSS class, "" for none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

#: The variables of a template.
View: TypeAlias = Mapping[str, Any]
#: The row of a node, and the column of a port in it.
Port: TypeAlias = tuple[int, int]
_PORT_OF = {twin.interface: f"QSFP port {number}" for number, twins in SPARK_PORTS.items() for twin in twins}


def of_plan(plan: Plan) -> View:
    """Return the fabric of a plan."""
    nodes = []
    for each in plan.nodes:
        rails = [rail(planned.interface, planned.hca, planned.address) for planned in each.rails]
        nodes.append(node(each.name, each.head, [], each.address, each.interface, rails))
    return fabric(nodes, plan.mtu)


def rail(interface: str, hca: str, address: str, notes: Sequence[str] = (), state: str = "") -> View:
    """Return a rail. ``address`` has its prefix length, "" for none. ``notes`` are further lines."""
    lines = [pcie_function(interface), interface, hca or "without RDMA", address, *notes]
    port = _PORT_OF.get(interface, "network device")
    return {"port": port, "address": address, "lines": list(filter(None, lines)), "state": state}


def node(
    name: str, head: bool, notes: Sequence[str], address: str, interface: str, rails: Sequence[View], state: str = ""
) -> View:
    """Return a node with the address and the interface of its ranks, "" if unknown. ``notes``: lines after its role."""
    ports: dict[str, list[View]] = {}
    for each in rails:
        ports.setdefault(each["port"], []).append(each)
    lines = ["head" if head else "worker", *notes, *(["its ranks use", address, interface] if address else [])]
    return {"name": name, "lines": lines, "ports": ports, "state": state}


def fabric(nodes: Sequence[View], mtu: int) -> View:
    """Return a drawing: the nodes in their order, the networks, and the most columns, PCIe functions and lines of any.

    A network is a cable or a part of a switch: the subnets that the same ports have.
    """
    found: dict[Port, Sequence[View]] = {}
    for row, each in enumerate(nodes):
        found |= {(row, column): rails for column, rails in enumerate(each["ports"].values())}
    joined = _joined(found)
    kind = "Switch, network" if any(len(ports) > 2 for ports in joined) else "Cable"
    networks = [
        {
            "name": f"{kind} {number}",
            "ports": ports,
            "words": [*subnets, f"MTU {mtu}"],
            "state": next((rail["state"] for port in ports for rail in found[port] if rail["state"]), ""),
        }
        for number, (ports, subnets) in enumerate(joined.items(), 1)
    ]
    return {
        "nodes": nodes,
        "networks": networks,
        "columns": max([1, *(column + 1 for _row, column in found)]),
        "functions": max([2, *map(len, found.values())]),
        "lines": max([4, *(len(rail["lines"]) for rails in found.values() for rail in rails)]),
    }


def _joined(found: Mapping[Port, Sequence[View]]) -> dict[tuple[Port, ...], list[str]]:
    """Return the subnets that join ports of several nodes, by these ports."""
    ends: dict[Any, dict[Port, None]] = {}
    for port, rails in found.items():
        for address in filter(None, (rail["address"] for rail in rails)):
            ends.setdefault(ipaddress.ip_interface(address).network, {})[port] = None
    joined: dict[tuple[Port, ...], list[str]] = {}
    for subnet in sorted(ends):
        if len({row for row, _column in ends[subnet]}) > 1:
            joined.setdefault(tuple(ends[subnet]), []).append(str(subnet))
    return joined


def pcie_function(interface: str) -> str:
    """Return the PCIe address in the name of a network device, "" if it contains none."""
    match = re.fullmatch(r"en(?:P(\d+))?p(\d+)s(\d+)f(\d+)(?:np\d+)?", interface, re.ASCII)
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*(int(part or 0) for part in match.groups())) if match else ""
