# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The QSFP fabric: from nodes and cabling to interfaces, addresses, a netplan document and the environment of every rank.

A ConnectX-7 port of a Spark appears as two network devices, one on each PCIe half ("twins"); one twin alone reaches half the
port's bandwidth, and twins in one subnet confuse routing and NCCL. So a cabled port is two rails, each its own subnet.
Sources: NVIDIA dgx-spark-playbooks, connect-two-sparks and multi-sparks-through-switch (July 2026); eugr/spark-vllm-docker, NETWORKING.md.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem

MTU_MIN, MTU_MAX = 1280, 9216
TRANSPORTS = ("roce", "socket")
TOPOLOGIES = ("auto", "direct", "none")


@dataclass(frozen=True)
class Twin:
    """One PCIe half of a QSFP port: its network device and its RDMA device."""

    interface: str
    hca: str


#: Physical port -> both twins, the one on PCIe domain 0000 first. Port 0 is the one next to the RJ45 socket.
SPARK_PORTS: Mapping[int, tuple[Twin, Twin]] = {
    0: (Twin("enp1s0f0np0", "rocep1s0f0"), Twin("enP2p1s0f0np0", "roceP2p1s0f0")),
    1: (Twin("enp1s0f1np1", "rocep1s0f1"), Twin("enP2p1s0f1np1", "roceP2p1s0f1")),
}


@dataclass(frozen=True)
class FabricNode:
    """What the fabric needs to know of a node: its name, its cabled ports, and addresses if the user wants certain ones.

    ``management`` is the address that Ansible reaches it by; a node without a fabric is called by it.
    """

    name: str
    ports: tuple[int, ...] = (1,)
    addresses: tuple[str, ...] = ()
    management: str = ""


@dataclass(frozen=True)
class Rail:
    """One twin of one node: its device, its address with prefix length, and the peers' addresses on the same subnet."""

    interface: str
    hca: str
    address: ipaddress.IPv4Interface
    peers: Mapping[str, str]


@dataclass(frozen=True)
class NodeFabric:
    """One node's share of the fabric. ``address`` is what Ray and vLLM call the node."""

    name: str
    address: str
    rails: tuple[Rail, ...] = ()
    netplan: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fabric:
    """How the nodes are cabled. ``pool`` is an IPv4 network from which each rail takes a /24; ``mtu`` is in bytes."""

    topology: str = "auto"
    pool: str = "10.110.0.0/16"
    mtu: int = 9000
    transport: str = "roce"


def resolve_topology(topology: str, nodes: int) -> str:
    """Return the topology that ``auto`` means for this many nodes."""
    return topology if topology != "auto" else ("none" if nodes == 1 else "direct")


def plan(nodes: Sequence[FabricNode], fabric: Fabric) -> tuple[list[NodeFabric], list[Problem]]:
    """Plan the fabric. The same input always gives the same plan.

    Returns one NodeFabric a node, in order, and every problem of the input; with problems the plan is empty.
    """
    problems, pool = _check_fabric(nodes, fabric)
    if resolve_topology(fabric.topology, len(nodes)) == "none":
        problems += _check_management(nodes[0]) if len(nodes) == 1 else []
        return ([] if problems else [NodeFabric(node.name, node.management) for node in nodes]), problems
    twins = [_twins(node, index, problems) for index, node in enumerate(nodes)]
    # Every check goes as far as the others' mistakes let it: the user is to see all of them at once.
    addresses = [_addresses(node, index, len(twins[index]), pool, problems) for index, node in enumerate(nodes)]
    _check_addresses(nodes, addresses, pool, problems)
    if problems:
        return [], problems
    # Without problems there is an address for every twin.
    complete = [[address for address in rails if address is not None] for rails in addresses]
    return [_node(index, nodes, twins, complete, fabric) for index in range(len(nodes))], []


def _check_fabric(nodes: Sequence[FabricNode], fabric: Fabric) -> tuple[list[Problem], ipaddress.IPv4Network | None]:
    problems = []
    pool = None
    if fabric.topology not in TOPOLOGIES:
        problems.append(
            Problem("gb10_fabric_topology", repr(fabric.topology), " or ".join(TOPOLOGIES), "set gb10_fabric_topology to one of them")
        )
    elif resolve_topology(fabric.topology, len(nodes)) == "direct" and len(nodes) != 2:
        problems.append(
            Problem("gb10_fabric_topology", f"direct with {len(nodes)} nodes", "two nodes on one cable", "list the pair, or choose another topology")
        )
    elif resolve_topology(fabric.topology, len(nodes)) == "none" and len(nodes) > 1:
        problems.append(
            Problem("gb10_fabric_topology", f"none with {len(nodes)} nodes", "a topology that connects them", "set gb10_fabric_topology: direct")
        )
    elif resolve_topology(fabric.topology, len(nodes)) == "direct":
        problems += [
            Problem(
                f"nodes[{index}].ports",
                f"{len(node.ports)} of {node.name}, {len(nodes[0].ports)} of {nodes[0].name}",
                "as many as on the other end: a cable has a port at each",
                "correct gb10_fabric_ports",
            )
            for index, node in enumerate(nodes)
            if node.ports and nodes[0].ports and len(node.ports) != len(nodes[0].ports)
        ]
    if not MTU_MIN <= fabric.mtu <= MTU_MAX:
        problems.append(Problem("gb10_fabric_mtu", str(fabric.mtu), f"{MTU_MIN} to {MTU_MAX} bytes", "use 9000 on a direct cable"))
    if fabric.transport not in TRANSPORTS:
        problems.append(Problem("gb10_fabric_transport", repr(fabric.transport), " or ".join(TRANSPORTS), "use roce between Sparks"))
    try:
        pool = ipaddress.IPv4Network(fabric.pool)
    except ValueError as error:
        problems.append(Problem("gb10_fabric_pool", str(error), "an IPv4 network such as 10.110.0.0/16", "correct gb10_fabric_pool"))
    else:
        needed = 2 * max((len(set(node.ports)) for node in nodes), default=0)
        if pool.prefixlen > 24 or 2 ** (24 - pool.prefixlen) < needed:
            problems.append(
                Problem("gb10_fabric_pool", f"{pool} has no room for {needed} subnets", f"room for {needed} /24 networks", "use a /16")
            )
            pool = None
    return problems, pool


def _check_management(node: FabricNode) -> list[Problem]:
    """Ray replaces a loopback address by one of its own choice, and vLLM compares addresses, not names."""
    with contextlib.suppress(ValueError):
        if not ipaddress.IPv4Address(node.management).is_loopback:
            return []
    return [
        Problem(
            "nodes[0].address",
            f"{node.name} is reached as {node.management!r}",
            "an IPv4 address of one of its interfaces, for it has no fabric to be called by",
            "set ansible_host to it",
        )
    ]


def _twins(node: FabricNode, index: int, problems: list[Problem]) -> list[Twin]:
    """Return the node's twins, port by port; none if any of its ports is wrong, so that nothing is concluded from them."""
    twins: list[Twin] = []
    before = len(problems)
    if not node.ports:
        problems.append(Problem(f"nodes[{index}].ports", f"{node.name} has no cabled port", "port 0, 1 or both", "set gb10_fabric_ports"))
    for position, port in enumerate(node.ports):
        path = f"nodes[{index}].ports[{position}]"
        if port not in SPARK_PORTS:
            problems.append(
                Problem(path, f"{node.name} has no QSFP port {port!r}", "0 (next to the RJ45 socket) or 1", "correct gb10_fabric_ports")
            )
        elif port in node.ports[:position]:
            problems.append(Problem(path, f"port {port} of {node.name} is listed twice", "each port once", "correct gb10_fabric_ports"))
        else:
            twins += SPARK_PORTS[port]
    return twins if len(problems) == before else []


def _addresses(
    node: FabricNode, index: int, rails: int, pool: ipaddress.IPv4Network | None, problems: list[Problem]
) -> list[ipaddress.IPv4Interface | None]:
    """Return the node's address on each rail: the user's if given, else host number index + 1 of the pool's rail-th /24.

    None where the user's is no address; ``rails`` is 0 where it cannot be told.
    """
    if not node.addresses:
        subnets = itertools.islice(pool.subnets(new_prefix=24), rails) if pool else ()
        return [ipaddress.IPv4Interface(f"{subnet[index + 1]}/24") for subnet in subnets]
    path = f"nodes[{index}].fabric_addresses"
    if rails and len(node.addresses) != rails:
        problems.append(
            Problem(
                path,
                f"{len(node.addresses)} for {node.name}",
                f"{rails}, one for each twin of each cabled port",
                "list them all in gb10_fabric_addresses, or none to have them chosen from gb10_fabric_pool",
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
                Problem(f"{path}[{rail}]", str(error), "an IPv4 address with prefix length, such as 10.110.0.1/24", "correct gb10_fabric_addresses")
            )
    return result


def _check_addresses(
    nodes: Sequence[FabricNode],
    addresses: Sequence[Sequence[ipaddress.IPv4Interface | None]],
    pool: ipaddress.IPv4Network | None,
    problems: list[Problem],
) -> None:
    owners: dict[ipaddress.IPv4Address, str] = {}
    for index, (node, rails) in enumerate(zip(nodes, addresses, strict=True)):
        seen: dict[int, ipaddress.IPv4Network] = {}
        for rail, address in enumerate(rails):
            if address is None:
                continue
            path = f"nodes[{index}].fabric_addresses[{rail}]"
            if address.ip in owners:
                problems.append(
                    Problem(path, f"{address.ip} of {node.name} is also {owners[address.ip]}", "an address of its own", "change one of the two")
                )
            owners.setdefault(address.ip, f"{path} of {node.name}")
            # The whole subnet, because all of it is routed to the fabric.
            if pool and not address.network.subnet_of(pool):
                problems.append(
                    Problem(path, f"{address} of {node.name} is outside gb10_fabric_pool {pool}", f"a subnet of {pool}", "change one of the two")
                )
            # Both addresses of a /31 are hosts (RFC 3021).
            if address.network.prefixlen != 31 and address.ip in (address.network.network_address, address.network.broadcast_address):
                problems.append(Problem(path, f"{address} of {node.name} is no host address", "a host address", "change its last octet"))
            twin = next((other for other, network in seen.items() if network.overlaps(address.network)), None)
            if twin is not None:
                problems.append(
                    Problem(
                        path,
                        f"{address} of {node.name} is in the same subnet as its fabric_addresses[{twin}]",
                        "each twin in a subnet of its own",
                        "give the twins different subnets",
                    )
                )
            seen[rail] = address.network
            first = addresses[0][rail] if rail < len(addresses[0]) else None
            if first is not None and address.network != first.network:
                problems.append(
                    Problem(
                        path,
                        f"{address} of {node.name} cannot reach {first} of {nodes[0].name} on the same cable",
                        f"an address in {first.network}",
                        "use one subnet a rail",
                    )
                )


def _node(
    index: int,
    nodes: Sequence[FabricNode],
    twins: Sequence[Sequence[Twin]],
    addresses: Sequence[Sequence[ipaddress.IPv4Interface]],
    fabric: Fabric,
) -> NodeFabric:
    rails = tuple(
        Rail(
            twin.interface,
            twin.hca,
            address,
            {
                peer.name: str(other.ip)
                for peer, peer_addresses in zip(nodes, addresses, strict=True)
                for other in peer_addresses
                if peer is not nodes[index] and other.network == address.network
            },
        )
        for twin, address in zip(twins[index], addresses[index], strict=True)
    )
    return NodeFabric(
        nodes[index].name, str(rails[0].address.ip), rails, netplan_document(rails, fabric.mtu), environment(rails, fabric.transport)
    )


def netplan_document(rails: Sequence[Rail], mtu: int) -> dict[str, Any]:
    """Return the netplan document of these rails: static addresses only, no IPv6, kept while the peer is off.

    ``ignore-carrier`` because a direct cable loses carrier on both ends when one node reboots, and without an address the
    other node's own processes cannot reach each other. No link-local address, so that RoCE GID indices do not move.
    """
    return {
        "network": {
            "version": 2,
            "ethernets": {
                rail.interface: {
                    "addresses": [str(rail.address)],
                    "dhcp4": False,
                    "dhcp6": False,
                    "ignore-carrier": True,
                    "link-local": [],
                    "mtu": mtu,
                    "optional": True,
                }
                for rail in rails
            },
        }
    }


def environment(rails: Sequence[Rail], transport: str) -> dict[str, str]:
    """Return the variables that keep every library on the fabric. NCCL's GID index stays unset: NCCL picks it per device.

    Bootstrap sockets use the first twin; with RoCE, data uses both twins of every cabled port.
    """
    first = rails[0].interface
    result = {
        "VLLM_HOST_IP": str(rails[0].address.ip),
        "NCCL_SOCKET_IFNAME": first,
        "GLOO_SOCKET_IFNAME": first,
        "TP_SOCKET_IFNAME": first,
        "UCX_NET_DEVICES": first,
    }
    if transport == "roce":
        return result | {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": ",".join(rail.hca for rail in rails)}
    return result | {"NCCL_IB_DISABLE": "1"}


def drift(rails: Sequence[Mapping[str, Any]], mtu: int, interfaces: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say how a node's interfaces differ from its rails, a sentence each; empty when the plan is live.

    ``rails`` as in the plan (interface, address with prefix), ``interfaces`` as node_info returns them.
    """
    differences = []
    for rail in rails:
        name = rail["interface"]
        found = interfaces.get(name)
        if found is None:
            differences.append(f"{name} does not exist")
            continue
        if rail["address"] not in found["addresses"]:
            differences.append(f"{name} has {', '.join(found['addresses']) or 'no address'} instead of {rail['address']}")
        if found["mtu"] != mtu:
            differences.append(f"{name} has MTU {found['mtu']} instead of {mtu}")
    return differences
