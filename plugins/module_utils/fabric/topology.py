# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shape of a fabric: which machines there are, which of their devices it uses, and which ports share a cable or a switch.

A ConnectX-7 port of a Spark appears as two network devices, one on each PCIe half ("twins"); one twin alone reaches half the
port's bandwidth, and twins in one subnet confuse routing and NCCL. So a cabled port is two rails, each its own subnet.
Sources: NVIDIA dgx-spark-playbooks, connect-two-sparks, connect-three-sparks and multi-sparks-through-switch (July 2026);
eugr/spark-vllm-docker, NETWORKING.md.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MTU_MIN, MTU_MAX = 1280, 9216
TOPOLOGIES = ("auto", "direct", "ring", "switch", "socket", "none")
TRANSPORTS = ("auto", "roce", "socket")
RENDERERS = ("networkd", "NetworkManager")
#: The files that this collection owns on a node. Names below 99 let a user's own later file still win, and the plan refuses those that do.
NETPLAN_FILE = "/etc/netplan/60-gb10-qsfp.yaml"
NETWORK_MANAGER_FILE = "/etc/NetworkManager/conf.d/60-gb10-qsfp.conf"
SYSCTL_FILE = "/etc/sysctl.d/60-gb10-qsfp.conf"
#: How many nodes a subnet of the pool has room for.
HOSTS_OF_A_24 = 254


@dataclass(frozen=True)
class Twin:
    """One PCIe half of a QSFP port: its network device and its RDMA device, "" where there is none."""

    interface: str
    hca: str


#: Physical port -> both twins, the one on PCIe domain 0000 first. Port 0 is the one next to the RJ45 socket. The network devices are
#: found by these names; an RDMA device may have another one (mlx5_0), which is read from each node.
SPARK_PORTS: Mapping[int, tuple[Twin, Twin]] = {
    0: (Twin("enp1s0f0np0", "rocep1s0f0"), Twin("enP2p1s0f0np0", "roceP2p1s0f0")),
    1: (Twin("enp1s0f1np1", "rocep1s0f1"), Twin("enP2p1s0f1np1", "roceP2p1s0f1")),
}


@dataclass(frozen=True)
class FabricNode:
    """What the fabric needs to know of a node.

    ``ports`` are its cabled QSFP ports; in a ring the one towards the next node first, then the one towards the previous. None: they
    cannot be told. ``hcas`` has the RDMA device of each network device as the node names it; of others a Spark's usual names count.
    ``addresses`` are those that the user wants, one for each rail. ``management`` is the address that Ansible reaches it by, and
    ``management_interface`` what carries it: "" if nothing does, None if that is not known. ``interface`` is the one device of a
    node in the topology socket, "" for the network that it is managed over.
    """

    name: str
    ports: tuple[int, ...] | None = (1,)
    addresses: tuple[str, ...] = ()
    management: str = ""
    management_interface: str | None = None
    interface: str = ""
    hcas: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fabric:
    """How the nodes are cabled. ``pool`` is an IPv4 network from which each rail takes a /24; ``mtu`` is in bytes."""

    topology: str = "auto"
    pool: str = "10.110.0.0/16"
    mtu: int = 9000
    transport: str = "auto"
    renderer: str = "networkd"


def resolve_topology(topology: str, nodes: int) -> str:
    """Return the topology that ``auto`` means for this many nodes; three or more can be cabled in two ways, so they stay ``auto``."""
    return {1: "none", 2: "direct"}.get(nodes, "auto") if topology == "auto" else topology


def resolve_transport(transport: str, topology: str) -> str:
    """Return the transport that ``auto`` means: RoCE wherever ConnectX ports are joined."""
    return ("socket" if topology in ("socket", "none") else "roce") if transport == "auto" else transport


def devices(node: FabricNode, topology: str) -> list[Twin]:
    """Return the devices that the fabric uses on a node, port by port; ports that do not exist are left out."""
    if topology == "none":
        return []
    if topology == "socket":
        return [Twin(node.interface, "")] if node.interface else []
    twins = [twin for port in node.ports or () for twin in SPARK_PORTS.get(port, ())]
    return [Twin(twin.interface, node.hcas.get(twin.interface, twin.hca)) for twin in twins]


def managed(nodes: Sequence[FabricNode], topology: str) -> bool:
    """Whether the nodes call each other by the addresses they are managed by: in a ring no subnet of the fabric reaches all."""
    return topology in ("none", "ring") or (topology == "socket" and not any(node.interface for node in nodes))


def width(topology: str) -> int:
    """How many rails a port has."""
    return 1 if topology == "socket" else 2


def segment(topology: str, index: int, position: int, count: int) -> int:
    """Number the cable (or switch) that the position-th port of the index-th node is plugged into.

    In a ring, cable i joins the first port of node i with the second of node i + 1.
    """
    return (index - position) % count if topology == "ring" else position


def subnets(nodes: Sequence[FabricNode], index: int, topology: str, pool: ipaddress.IPv4Network | None) -> list[ipaddress.IPv4Network]:
    """Return the subnet of each rail of a node: every twin of every cable has one of its own."""
    rails = width(topology)
    ports = len(devices(nodes[index], topology)) // rails
    every = list(itertools.islice(pool.subnets(new_prefix=24), needed_subnets(nodes, topology))) if pool else []
    numbers = [segment(topology, index, position, len(nodes)) * rails + twin for position in range(ports) for twin in range(rails)]
    return [every[number] for number in numbers if number < len(every)]


def needed_subnets(nodes: Sequence[FabricNode], topology: str) -> int:
    """Return how many subnets the pool must have room for."""
    segments = len(nodes) if topology == "ring" else max((len(set(node.ports or ())) for node in nodes), default=0)
    return {"none": 0, "socket": int(any(node.interface for node in nodes))}.get(topology, 2 * segments)
