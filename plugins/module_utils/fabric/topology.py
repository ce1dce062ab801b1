# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shape of a fabric: its nodes, the devices that it uses, and the ports that share a cable or a switch.

A topology is one entry of TOPOLOGIES. Checks, addresses, environment, discovery and the lab derive from it.

A ConnectX-7 port of a Spark has two PCIe functions ("twins" in the code), one on each PCIe half, each with a network
device. One alone reaches half the port's bandwidth, and two in one subnet confuse routing and NCCL. So a cabled port is
two rails, each with its own subnet.
Sources: NVIDIA dgx-spark-playbooks, connect-two-sparks, connect-three-sparks and multi-sparks-through-switch (July
2026); eugr/spark-vllm-docker, NETWORKING.md.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Network

MTU_MIN, MTU_MAX = 1280, 9216
AUTO = "auto"
#: The medium of a topology.
CABLES, SWITCHES, DEVICE, NOTHING = "cables", "switches", "device", ""
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

#: Value of gb10_fabric_functions -> the PCIe functions of each port in the fabric.
_FUNCTIONS: Mapping[str, slice] = {"both": slice(2), "first": slice(1), "second": slice(1, 2)}
FUNCTIONS = tuple(_FUNCTIONS)


@dataclass(frozen=True)
class FabricNode:
    """The fabric's input for a node.

    ``ports`` are its cabled QSFP ports, None if unknown; in a ring, first the port to the next node, then the one to
    the previous. ``addresses`` are the user's, one for each rail. ``management`` is the address that Ansible uses.
    ``interface`` is the node's only device in the topology socket, "" for its management network. ``network`` are the
    node's facts, None if it was not read. ``removing``: the node's fabric is removed, so that its links do not count.
    ``functions``: the PCIe functions of each port that the fabric uses.
    """

    name: str
    ports: tuple[int, ...] | None = None
    addresses: tuple[str, ...] = ()
    management: str = ""
    interface: str = ""
    network: Network | None = None
    removing: bool = False
    functions: str = "both"

    @property
    def management_interface(self) -> str | None:
        """The interface with the management address: "" if none has it, None if unknown."""
        return self.network.carrier(self.management) if self.network else None


@dataclass(frozen=True)
class Fabric:
    """How the nodes are cabled. ``pool`` is an IPv4 network with a /24 for each rail; ``mtu`` is in bytes."""

    topology: str = "auto"
    pool: str = "10.110.0.0/16"
    mtu: int = 9000
    transport: str = "auto"
    renderer: str = "networkd"


def _by_position(_index: int, position: int, _count: int) -> int:
    return position


def _around(index: int, position: int, count: int) -> int:
    """In a ring, cable i joins the first port of node i with the second of node i + 1."""
    return (index - position) % count


def _no_variables(_ports: Sequence[tuple[int, ...]]) -> dict[str, str]:
    return {}


def equal_cables(ports: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a cable of a ring joins two equal ports. ``ports`` of each node, () where they are unknown."""
    return any(own and own[1:] == ports[index - 1][:1] for index, own in enumerate(ports))


#: The variables of a ring where not every pair of nodes has a cable.
SPARSE_RING: dict[str, str] = {"NCCL_ALGO": "Ring", "NCCL_RUNTIME_CONNECT": "1", "NCCL_CUMEM_ENABLE": "1"}


def _ring_variables(ports: Sequence[tuple[int, ...]]) -> dict[str, str]:
    """Beyond three nodes, not every pair has a cable: NCCL needs its ring algorithm, and must connect no other one.

    Without cuMem it connects trees and PAT to the opposite node at its start, whatever NCCL_ALGO is. With it,
    only the algorithm in use. Source: NCCL 2.22 to 2.30.7, src/init.cc, runtimeConn.

    A channel receives and sends on the device of the same number. Where a cable joins equal ports, that device leads to
    the other neighbor. Only merged devices offer the addresses of both ports, among which the sender finds its cable.
    Source: NCCL 2.30.7, src/transport/net_ib/connect.cc; tests/gpu/ring.py.
    """
    merged = "1" if equal_cables(ports) else "0"
    result = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_NET_PLUGIN": "none", "NCCL_IB_MERGE_NICS": merged}
    return result | (SPARSE_RING if len(ports) > 3 else {})


@dataclass(frozen=True)
class Topology:
    """One way to connect nodes."""

    #: CABLES or SWITCHES between QSFP ports, another DEVICE of each node, or NOTHING.
    medium: str
    #: The smallest number of nodes, and the text of the problem with another number: expectation and fix.
    #: In ``fix``, {auto} is the topology that auto selects.
    least: int
    expected: str
    fix: str
    most: int = HOSTS_OF_A_24
    #: The number of nodes for which auto selects this topology.
    automatic: int | None = None
    #: (index of a node, position of its port, number of nodes) -> number of the cable or switch there, all from 0.
    segment: Callable[[int, int, int], int] = _by_position
    #: The ports of every node by position if they are fixed, and their description.
    ports: tuple[int, ...] = ()
    ports_text: str = ""
    #: The number of ports that a node is expected to have, if all have equally many.
    equal_ports: str = ""
    #: Whether each cable joins a port 0 and a port 1.
    crossed: bool = False
    #: Whether nodes use each other's management addresses, because no subnet of the fabric reaches all.
    managed: bool = False
    #: Why only the automatic transport works, "" if all do.
    one_transport: str = ""
    #: Ports of each node -> NCCL's variables in addition to the transport's. With QSFP ports they apply to RoCE only.
    variables: Callable[[Sequence[tuple[int, ...]]], dict[str, str]] = _no_variables

    @property
    def qsfp(self) -> bool:
        """Whether it connects QSFP ports."""
        return self.medium in (CABLES, SWITCHES)


#: The values of gb10_fabric_topology except auto. Discovery proposes the first topology that matches the cables.
TOPOLOGIES: dict[str, Topology] = {
    "direct": Topology(
        CABLES,
        least=2,
        most=2,
        automatic=2,
        expected="two nodes on one cable",
        fix="list the pair, or choose another topology",
        equal_ports="as many as on the other end: each cable needs a port at both ends",
        variables=lambda _ports: {"NCCL_IB_MERGE_NICS": "1"},
    ),
    "ring": Topology(
        CABLES,
        least=3,
        expected="three nodes or more",
        fix="use direct for a pair",
        segment=_around,
        ports=(0, 1),
        ports_text="port 0 to the next node and port 1 to the previous",
        crossed=True,
        managed=True,
        one_transport="in a ring, sockets reach all nodes over the management network only",
        variables=_ring_variables,
    ),
    "switch": Topology(
        SWITCHES,
        least=2,
        expected="two nodes or more",
        fix="use auto",
        equal_ports="as many as on every node: each switch connects all nodes",
    ),
    "socket": Topology(
        DEVICE,
        least=2,
        expected="two nodes or more",
        fix="use auto",
        one_transport="not every node has ConnectX",
        variables=lambda _ports: {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_PROTO": "Simple"},
    ),
    "none": Topology(
        NOTHING,
        least=1,
        most=1,
        automatic=1,
        expected="a topology that connects them",
        fix="set gb10_fabric_topology: {auto}",
        managed=True,
    ),
}


def entry(topology: str) -> Topology:
    """Return a topology. For an invalid name, which is a problem itself, further checks assume a switch."""
    return TOPOLOGIES.get(topology, TOPOLOGIES["switch"])


def resolve_topology(topology: str, nodes: int) -> str:
    """Return the topology for ``auto``. Three or more nodes can be cabled in two ways, so they stay ``auto``."""
    if topology != AUTO:
        return topology
    return next((name for name, shape in TOPOLOGIES.items() if shape.automatic == nodes), AUTO)


def resolve_transport(transport: str, topology: str) -> str:
    """Return the transport for ``auto``: RoCE wherever ConnectX ports are connected."""
    return ("roce" if entry(topology).qsfp else "socket") if transport == "auto" else transport


def twins(port: int, functions: str) -> tuple[Twin, ...]:
    """Return the PCIe functions of a port in the fabric, () without such a port."""
    both: tuple[Twin, ...] = SPARK_PORTS.get(port, ())
    return both[_FUNCTIONS.get(functions, slice(2))]


def devices(node: FabricNode, topology: str) -> list[Twin]:
    """Return a node's devices in the fabric, port by port; ports that do not exist are left out.

    RDMA devices have the node's names, or a Spark's usual ones where they are unknown.
    """
    shape = entry(topology)
    if shape.medium == DEVICE and node.interface:
        return [Twin(node.interface, "")]
    used = [twin for port in node.ports or () for twin in twins(port, node.functions)] if shape.qsfp else []
    hcas = node.network.hcas if node.network else {}
    return [Twin(twin.interface, hcas.get(twin.interface, twin.hca)) for twin in used]


def managed(nodes: Sequence[FabricNode], topology: str) -> bool:
    """Return whether nodes use each other's management addresses, because no subnet of the fabric reaches all."""
    shape = entry(topology)
    return shape.managed or (shape.medium == DEVICE and not any(node.interface for node in nodes))


def width(nodes: Sequence[FabricNode], topology: str) -> int:
    """Return the number of rails per port."""
    return 1 if entry(topology).medium == DEVICE else len(twins(0, nodes[0].functions))


def segment(topology: str, index: int, position: int, count: int) -> int:
    """Return the number of the cable (or switch) at the position-th port of the index-th node."""
    return entry(topology).segment(index, position, count)


def subnets(
    nodes: Sequence[FabricNode], index: int, topology: str, pool: ipaddress.IPv4Network | None
) -> list[ipaddress.IPv4Network]:
    """Return the subnet of each rail of a node: each PCIe function of each cable has its own."""
    rails = width(nodes, topology)
    ports = len(devices(nodes[index], topology)) // rails
    every = list(itertools.islice(pool.subnets(new_prefix=24), needed_subnets(nodes, topology))) if pool else []
    numbers = [
        segment(topology, index, position, len(nodes)) * rails + twin
        for position in range(ports)
        for twin in range(rails)
    ]
    return [every[number] for number in numbers if number < len(every)]


def needed_subnets(nodes: Sequence[FabricNode], topology: str) -> int:
    """Return the number of subnets that the pool must have room for."""
    shape, count = entry(topology), len(nodes)
    if not shape.qsfp:
        return int(shape.medium == DEVICE and any(node.interface for node in nodes))
    ports = [len(shape.ports) or len(set(node.ports or ())) for node in nodes]
    segments = {shape.segment(index, position, count) for index, own in enumerate(ports) for position in range(own)}
    return width(nodes, topology) * len(segments)
