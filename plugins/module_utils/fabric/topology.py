# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shape of a fabric: its nodes, the devices that it uses, and the ports that share a cable or a switch.

A ConnectX-7 port of a Spark has two PCIe functions ("twins" in the code), one on each PCIe half, each with a network
device. One alone reaches half the port's bandwidth, and two in one subnet confuse routing and NCCL. So a cabled port is
two rails, each with its own subnet.
Sources: NVIDIA dgx-spark-playbooks, connect-two-sparks, connect-three-sparks and multi-sparks-through-switch (July 2026);
eugr/spark-vllm-docker, NETWORKING.md.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Network

MTU_MIN, MTU_MAX = 1280, 9216
TOPOLOGIES = ("auto", "direct", "ring", "switch", "socket", "none")
TRANSPORTS = ("auto", "roce", "socket")
RENDERERS = ("networkd", "NetworkManager")
#: The files that this collection owns on a node. A user's file with a later name would override them, as the names are
#: below 99; the plan rejects such files.
NETPLAN_FILE = "/etc/netplan/60-gb10-qsfp.yaml"
NETWORK_MANAGER_FILE = "/etc/NetworkManager/conf.d/60-gb10-qsfp.conf"
SYSCTL_FILE = "/etc/sysctl.d/60-gb10-qsfp.conf"
#: The number of nodes that fit into a subnet of the pool.
HOSTS_OF_A_24 = 254


@dataclass(frozen=True)
class Twin:
    """One PCIe function of a QSFP port: its network device and its RDMA device, "" if there is none."""

    interface: str
    hca: str


#: Physical port -> both PCIe functions, the one on PCIe domain 0000 first. Port 0 is next to the RJ45 socket.
#: Network devices are found by these names. An RDMA device may have another name (mlx5_0), read from each node.
SPARK_PORTS: Mapping[int, tuple[Twin, Twin]] = {
    0: (Twin("enp1s0f0np0", "rocep1s0f0"), Twin("enP2p1s0f0np0", "roceP2p1s0f0")),
    1: (Twin("enp1s0f1np1", "rocep1s0f1"), Twin("enP2p1s0f1np1", "roceP2p1s0f1")),
}


@dataclass(frozen=True)
class FabricNode:
    """The fabric's input for a node.

    ``ports`` are its cabled QSFP ports, None if unknown; in a ring, first the port to the next node, then the one to
    the previous. ``hcas`` maps network devices to RDMA devices with the node's names; missing ones have a Spark's
    usual names.
    ``addresses`` are the user's, one for each rail. ``management`` is the address that Ansible uses, and
    ``management_interface`` the interface with that address: "" if none has it, None if unknown. ``interface`` is the
    node's only device in the topology socket, "" for its management network. ``network`` are the node's facts, None if
    it was not read. ``removing``: the node's fabric is removed, so that its links do not count.
    """

    name: str
    ports: tuple[int, ...] | None = (1,)
    addresses: tuple[str, ...] = ()
    management: str = ""
    management_interface: str | None = None
    interface: str = ""
    hcas: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None
    removing: bool = False


@dataclass(frozen=True)
class Fabric:
    """How the nodes are cabled. ``pool`` is an IPv4 network from which each rail takes a /24; ``mtu`` is in bytes."""

    topology: str = "auto"
    pool: str = "10.110.0.0/16"
    mtu: int = 9000
    transport: str = "auto"
    renderer: str = "networkd"


def resolve_topology(topology: str, nodes: int) -> str:
    """Return the topology for ``auto``. Three or more nodes can be cabled in two ways, so they stay ``auto``."""
    return {1: "none", 2: "direct"}.get(nodes, "auto") if topology == "auto" else topology


def resolve_transport(transport: str, topology: str) -> str:
    """Return the transport for ``auto``: RoCE wherever ConnectX ports are connected."""
    return ("socket" if topology in ("socket", "none") else "roce") if transport == "auto" else transport


def devices(node: FabricNode, topology: str) -> list[Twin]:
    """Return a node's devices in the fabric, port by port; ports that do not exist are left out."""
    if topology == "none":
        return []
    if topology == "socket":
        return [Twin(node.interface, "")] if node.interface else []
    twins = [twin for port in node.ports or () for twin in SPARK_PORTS.get(port, ())]
    return [Twin(twin.interface, node.hcas.get(twin.interface, twin.hca)) for twin in twins]


def managed(nodes: Sequence[FabricNode], topology: str) -> bool:
    """Return whether nodes use each other's management addresses: in a ring, no subnet of the fabric reaches all."""
    return topology in ("none", "ring") or (topology == "socket" and not any(node.interface for node in nodes))


def width(topology: str) -> int:
    """Return the number of rails per port."""
    return 1 if topology == "socket" else 2


def segment(topology: str, index: int, position: int, count: int) -> int:
    """Return the number of the cable (or switch) at the position-th port of the index-th node.

    In a ring, cable i joins the first port of node i with the second of node i + 1.
    """
    return (index - position) % count if topology == "ring" else position


def subnets(nodes: Sequence[FabricNode], index: int, topology: str, pool: ipaddress.IPv4Network | None) -> list[ipaddress.IPv4Network]:
    """Return the subnet of each rail of a node: each PCIe function of each cable has its own."""
    rails = width(topology)
    ports = len(devices(nodes[index], topology)) // rails
    every = list(itertools.islice(pool.subnets(new_prefix=24), needed_subnets(nodes, topology))) if pool else []
    numbers = [segment(topology, index, position, len(nodes)) * rails + twin for position in range(ports) for twin in range(rails)]
    return [every[number] for number in numbers if number < len(every)]


def needed_subnets(nodes: Sequence[FabricNode], topology: str) -> int:
    """Return the number of subnets that the pool must have room for."""
    segments = len(nodes) if topology == "ring" else max((len(set(node.ports or ())) for node in nodes), default=0)
    return {"none": 0, "socket": int(any(node.interface for node in nodes))}.get(topology, 2 * segments)
