# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of a fabric. Each function returns or appends problems, and continues as far as other problems allow."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    AUTO,
    DEVICE,
    HOSTS_OF_A_24,
    MTU_MAX,
    MTU_MIN,
    RENDERERS,
    SPARK_PORTS,
    TOPOLOGIES,
    TRANSPORTS,
    Fabric,
    FabricNode,
    devices,
    entry,
    managed,
    needed_subnets,
    resolve_topology,
    resolve_transport,
    segment,
    width,
)

_TOPOLOGY = "gb10_fabric_topology"


def check_fabric(
    nodes: Sequence[FabricNode], fabric: Fabric, topology: str
) -> tuple[list[Problem], ipaddress.IPv4Network | None]:
    """Check the settings of the whole fabric. Returns the problems and the address pool, None if that is invalid."""
    problems = _check_topology(nodes, topology)
    # The requirements of an invalid topology are unknown.
    if not any(problem.path == _TOPOLOGY for problem in problems):
        problems += [
            problem
            for index, node in enumerate(nodes)
            if managed(nodes, topology)
            for problem in _check_management(node, index, topology)
        ]
        problems += _check_ring(nodes) if entry(topology).crossed else []
    if not MTU_MIN <= fabric.mtu <= MTU_MAX:
        problems.append(
            Problem("gb10_fabric_mtu", str(fabric.mtu), f"{MTU_MIN} to {MTU_MAX} bytes", "use 9000 on a direct cable")
        )
    problems += _check_transport(fabric.transport, topology)
    if fabric.renderer not in RENDERERS:
        problems.append(Problem("gb10_fabric_renderer", repr(fabric.renderer), " or ".join(RENDERERS), "use networkd"))
    pool, found = _check_pool(fabric.pool, needed_subnets(nodes, topology))
    return [*problems, *found], pool


def _check_transport(transport: str, topology: str) -> list[Problem]:
    path, expected = "gb10_fabric_transport", resolve_transport("auto", topology)
    if transport not in TRANSPORTS:
        return [Problem(path, repr(transport), " or ".join(TRANSPORTS), "use auto, which is roce between Sparks")]
    if (why := entry(topology).one_transport) and resolve_transport(transport, topology) != expected:
        return [Problem(path, f"{transport} with {topology}: {why}", expected, "use auto")]
    return []


def _check_pool(text: str, needed: int) -> tuple[ipaddress.IPv4Network | None, list[Problem]]:
    """Return the address pool, None if it is invalid or has no room for the needed subnets, and the problems."""
    path = "gb10_fabric_cidr"
    try:
        pool = ipaddress.IPv4Network(text)
    except ValueError as error:
        return None, [Problem(path, str(error), "an IPv4 network such as 10.110.0.0/16", f"correct {path}")]
    if needed and (pool.prefixlen > 24 or 2 ** (24 - pool.prefixlen) < needed):
        return None, [
            Problem(path, f"{pool} has no room for {needed} subnets", f"room for {needed} /24 networks", "use a /16")
        ]
    return pool, []


def _check_topology(nodes: Sequence[FabricNode], topology: str) -> list[Problem]:
    """Check the topology against the number of nodes and their interfaces or ports."""
    count = len(nodes)
    if topology not in (AUTO, *TOPOLOGIES):
        return [Problem(_TOPOLOGY, repr(topology), " or ".join([AUTO, *TOPOLOGIES]), f"set {_TOPOLOGY} to one of them")]
    if topology == AUTO:
        manual = [name for name, shape in TOPOLOGIES.items() if shape.qsfp and shape.automatic is None]
        expected = f"{' or '.join(manual)}, whichever matches the cables"
        return [Problem(_TOPOLOGY, f"{AUTO} with {count} nodes", expected, f"set {_TOPOLOGY}")]
    if count > HOSTS_OF_A_24:
        return [Problem("nodes", f"{count} nodes", f"at most {HOSTS_OF_A_24}, the hosts of a /24", "list fewer nodes")]
    shape = entry(topology)
    if not shape.least <= count <= shape.most:
        fix = shape.fix.format(auto=resolve_topology(AUTO, count))
        return [Problem(_TOPOLOGY, f"{topology} with {count} nodes", shape.expected, fix)]
    return _check_interfaces(nodes) if shape.medium == DEVICE else _check_number_of_ports(nodes, shape.equal_ports)


def _check_number_of_ports(nodes: Sequence[FabricNode], expected: str) -> list[Problem]:
    """Check that all nodes have equally many ports, with ``expected`` as reason; "" allows any number.

    _check_ring checks rings.
    """
    return [
        Problem(
            f"nodes[{index}].ports",
            f"{len(node.ports)} of {node.name}, {len(nodes[0].ports)} of {nodes[0].name}",
            expected,
            "correct gb10_fabric_ports",
        )
        for index, node in enumerate(nodes)
        if expected and node.ports and nodes[0].ports and len(node.ports) != len(nodes[0].ports)
    ]


def _check_interfaces(nodes: Sequence[FabricNode]) -> list[Problem]:
    return [
        Problem(
            f"nodes[{index}].interface",
            f"{node.name} has none, but other nodes do",
            "the device on the others' network",
            "set gb10_fabric_interface for every node, or for none to use the management network",
        )
        for index, node in enumerate(nodes)
        if not node.interface and any(other.interface for other in nodes)
    ]


def _check_ring(nodes: Sequence[FabricNode]) -> list[Problem]:
    """Find missing cables."""
    return [
        Problem(
            f"nodes[{index}].ports",
            f"{len(node.ports)} of {node.name}",
            f"2 in a ring: the one cabled to {nodes[(index + 1) % len(nodes)].name}, then the one cabled to "
            f"{nodes[index - 1].name}",
            "correct gb10_fabric_ports, or plug in the missing cable",
        )
        for index, node in enumerate(nodes)
        if node.ports and len(node.ports) != 2
    ]


def _check_management(node: FabricNode, index: int, topology: str) -> list[Problem]:
    """Check a node's management address.

    Ray replaces a loopback address by another one, and vLLM compares addresses, not names.
    """
    path = f"nodes[{index}].address"
    with contextlib.suppress(ValueError):
        if not ipaddress.IPv4Address(node.management).is_loopback:
            if node.management_interface == "" and topology != "none":
                found = f"no interface of {node.name} carries {node.management}"
                return [Problem(path, found, "the address at which the other nodes reach it", "set ansible_host to it")]
            return []
    why = "it has no fabric address" if topology == "none" else "the nodes reach each other at it"
    return [
        Problem(
            path,
            f"the management address of {node.name} is {node.management!r}",
            f"an IPv4 address of one of its interfaces, because {why}",
            "set ansible_host to it",
        )
    ]


def check_ports(nodes: Sequence[FabricNode], index: int, topology: str, problems: list[Problem]) -> int:
    """Return the node's number of rails, 0 if a port is invalid or unknown, so that no check uses it."""
    node, found = nodes[index], list[Problem]()
    if not entry(topology).qsfp:
        return len(devices(node, topology))
    if node.ports is None:
        return 0
    if not node.ports:
        found.append(
            Problem(
                f"nodes[{index}].ports", f"{node.name} has no cabled port", "port 0, 1 or both", "set gb10_fabric_ports"
            )
        )
    owner, place = node.name, f"nodes[{index}].ports"
    if len(nodes) > 1 and all(other.ports == node.ports for other in nodes):
        owner, place = "all nodes", "gb10_fabric_ports"
    for position, port in enumerate(node.ports):
        path, fix = f"{place}[{position}]", "correct gb10_fabric_ports"
        if port not in SPARK_PORTS:
            said = f"QSFP port {port!r} of {owner} does not exist"
            found.append(Problem(path, said, "0 (next to the RJ45 socket) or 1", fix))
        elif port in node.ports[:position]:
            found.append(Problem(path, f"port {port} of {owner} is listed twice", "each port once", fix))
    problems += [problem for problem in found if problem not in problems]
    return 0 if found else len(devices(node, topology))


def check_unused(nodes: Sequence[FabricNode], topology: str) -> list[Problem]:
    """Return a problem for each node that has addresses but no device in the fabric."""
    return [
        Problem(
            f"nodes[{index}].fabric_addresses",
            f"{len(node.addresses)} for {node.name}, which has no device in the topology {topology}",
            "none",
            "remove gb10_fabric_addresses, or set the node's device in gb10_fabric_interface",
        )
        for index, node in enumerate(nodes)
        if node.addresses and (node.ports is not None or not entry(topology).qsfp) and not devices(node, topology)
    ]


def addresses_of(
    node: FabricNode, index: int, rails: int, subnets: Sequence[ipaddress.IPv4Network], problems: list[Problem]
) -> list[ipaddress.IPv4Interface | None]:
    """Return the node's address on each rail: the user's if given, else host number index + 1 of the rail's subnet.

    None where the user's value is not an address; ``rails`` is 0 if unknown.
    """
    if not node.addresses:
        return [
            ipaddress.IPv4Interface(f"{subnet[index + 1]}/24") for subnet in subnets[:rails] if index < HOSTS_OF_A_24
        ]
    path = f"nodes[{index}].fabric_addresses"
    if rails and len(node.addresses) != rails:
        problems.append(
            Problem(
                path,
                f"{len(node.addresses)} for {node.name}",
                f"{rails}, one for each PCIe function of each cabled port",
                "list all of them in gb10_fabric_addresses, or none to take them from gb10_fabric_cidr",
            )
        )
    result: list[ipaddress.IPv4Interface | None] = []
    for rail, text in enumerate(node.addresses):
        try:
            if "/" not in text:
                raise ValueError(f"{text!r} has no prefix length")
            result.append(ipaddress.IPv4Interface(text))
        except ValueError as error:
            result.append(None)
            problems.append(
                Problem(
                    f"{path}[{rail}]",
                    str(error),
                    "an IPv4 address with prefix length, such as 10.110.0.1/24",
                    "correct gb10_fabric_addresses",
                )
            )
    return result


def check_addresses(
    nodes: Sequence[FabricNode],
    addresses: Sequence[Sequence[ipaddress.IPv4Interface | None]],
    topology: str,
    pool: ipaddress.IPv4Network | None,
    problems: list[Problem],
) -> None:
    """Compare all addresses with each other and with the pool."""
    owners: dict[ipaddress.IPv4Address, str] = {}
    subnets: dict[tuple[int, int], tuple[ipaddress.IPv4Interface, str]] = {}
    per_port = width(nodes, topology)
    for index, (node, rails) in enumerate(zip(nodes, addresses, strict=True)):
        seen: dict[int, ipaddress.IPv4Network] = {}
        for rail, address in enumerate(rails):
            if address is None:
                continue
            path = f"nodes[{index}].fabric_addresses[{rail}]"
            if address.ip in owners:
                found = f"{address.ip} of {node.name} is also {owners[address.ip]}"
                problems.append(Problem(path, found, "a unique address", "change one of the two"))
            owners.setdefault(address.ip, f"{path} of {node.name}")
            # Check the whole subnet, because all of it is routed to the fabric.
            if pool and not address.network.subnet_of(pool):
                problems.append(
                    Problem(
                        path,
                        f"{address} of {node.name} is outside gb10_fabric_cidr {pool}",
                        f"a subnet of {pool}",
                        "change one of the two",
                    )
                )
            # Both addresses of a /31 are hosts (RFC 3021).
            if address.network.prefixlen != 31 and address.ip in (
                address.network.network_address,
                address.network.broadcast_address,
            ):
                found = f"{address} of {node.name} is not a host address"
                problems.append(Problem(path, found, "a host address", "change its last octet"))
            twin = next((other for other, network in seen.items() if network.overlaps(address.network)), None)
            if twin is not None:
                problems.append(
                    Problem(
                        path,
                        f"{address} of {node.name} is in the same subnet as its fabric_addresses[{twin}]",
                        "each PCIe function in its own subnet",
                        "use different subnets for the PCIe functions",
                    )
                )
            seen[rail] = address.network
            place = (segment(topology, index, rail // per_port, len(nodes)), rail % per_port)
            first, owner = subnets.setdefault(place, (address, node.name))
            if address.network != first.network:
                problems.append(
                    Problem(
                        path,
                        f"{address} of {node.name} cannot reach {first} of {owner} on the same cable",
                        f"an address in {first.network}",
                        "use one subnet per rail",
                    )
                )
