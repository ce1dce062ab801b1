# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The QSFP fabric: from nodes and cabling to interfaces, addresses, a netplan document and the environment of every
rank."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import checks as fabric_checks
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import environment, links, netplan, rdma
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import drift
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    Fabric,
    FabricNode,
    Twin,
    devices,
    entry,
    equal_cables,
    managed,
    resolve_topology,
    resolve_transport,
    subnets,
)
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import NodeFabric, Rail

#: The MTU of direct cables, in bytes.
_CABLE_MTU = 9000


@dataclass(frozen=True)
class FabricPlan:
    """The fabric of a cluster.

    ``members`` are the inputs with the chosen ports. ``nodes``, in the same order, is empty if problems prevent a plan.
    ``why`` is the reason for the ports, "" if they are given. ``problems`` are those of the settings and the cabling,
    ``link_problems`` those of the links and their GIDs.
    """

    topology: str
    members: tuple[FabricNode, ...]
    nodes: tuple[NodeFabric, ...]
    why: str
    problems: tuple[Problem, ...]
    link_problems: tuple[Problem, ...]


def of_cluster(
    nodes: Sequence[FabricNode], ports: Sequence[links.Ports], fabric: Fabric, rdma_required: bool, pin: bool
) -> FabricPlan:
    """Plan the fabric from the settings and the nodes' facts.

    ``ports`` are the values of gb10_fabric_ports. ``pin``: set NCCL_IB_GID_INDEX where the plan is live. A fresh host
    has no index before it has an address; then the role qsfp_netplan pins it.
    """
    topology = resolve_topology(fabric.topology, len(nodes))
    chosen, unclear, why = links.choose(nodes, ports, topology)
    nodes = [replace(node, ports=some) for node, some in zip(nodes, chosen, strict=True)]
    shares, problems = plan(nodes, fabric, topology)
    roce = rdma_required and resolve_transport(fabric.transport, topology) == "roce"
    link_problems = links.check(nodes, topology, roce)
    for index, (share, node) in enumerate(zip(shares, nodes, strict=bool(shares))):
        if (
            pin
            and node.network
            and not drift({rail.interface: rail.address for rail in share.rails}, fabric.mtu, node.network.interfaces)
        ):
            index_variable, found = rdma.pinned([(rail.hca, rail.address) for rail in share.rails], node.network.rdma)
            shares[index] = replace(share, environment={**share.environment, **index_variable})
            link_problems += [replace(problem, path=f"nodes[{index}].{problem.path}") for problem in found]
    return FabricPlan(topology, tuple(nodes), tuple(shares), why, (*unclear, *problems), tuple(link_problems))


def plan(nodes: Sequence[FabricNode], fabric: Fabric, topology: str) -> tuple[list[NodeFabric], list[Problem]]:
    """Plan the fabric with the result of resolve_topology(). The same input always gives the same plan.

    Returns one NodeFabric per node, in order, and all problems of the input. With problems or unknown ports, the plan
    is empty.
    """
    problems, pool = fabric_checks.check_fabric(nodes, fabric, topology)
    # Each check continues as far as other problems allow, because the user needs all problems at once.
    addresses = [
        fabric_checks.addresses_of(
            node,
            index,
            fabric_checks.check_ports(nodes, index, topology, problems),
            subnets(nodes, index, topology, pool),
            problems,
        )
        for index, node in enumerate(nodes)
    ]
    fabric_checks.check_addresses(nodes, addresses, topology, pool, problems)
    problems = problems or fabric_checks.check_unused(nodes, topology)
    if problems or (entry(topology).qsfp and any(node.ports is None for node in nodes)):
        return [], problems
    # Without problems there is an address for every device.
    ends = [
        _End(node, twin, address)
        for node, own in zip(nodes, addresses, strict=True)
        for twin, address in zip(devices(node, topology), own, strict=True)
        if address is not None
    ]
    return [_node(node, nodes, ends, fabric, topology) for node in nodes], []


class _End(NamedTuple):
    """A device of a node, and its planned address."""

    node: FabricNode
    twin: Twin
    address: ipaddress.IPv4Interface

    @property
    def mac(self) -> str:
        """Its MAC address, "" if it is unknown."""
        found = self.node.network.interfaces.get(self.twin.interface) if self.node.network else None
        return found.mac if found else ""


def _node(
    node: FabricNode, nodes: Sequence[FabricNode], ends: Sequence[_End], fabric: Fabric, topology: str
) -> NodeFabric:
    own = [end for end in ends if end.node is node]
    rails = tuple(_rail(end, ends) for end in own)
    without = managed(nodes, topology)
    address = node.management if without else str(own[0].address.ip)
    interface = (node.management_interface or "") if without else rails[0].interface
    addresses_of = {rail.interface: rail.address for rail in rails}
    return NodeFabric(
        node.name,
        address,
        interface,
        rails,
        netplan.document(addresses_of, fabric.mtu, fabric.renderer) if rails else {},
        netplan.files(list(addresses_of), fabric.renderer) if rails else {},
        {}
        if topology == "none"
        else environment.variables(
            topology,
            [node.ports or () for node in nodes],
            address,
            interface,
            [rail.hca for rail in rails],
            fabric.transport,
        ),
    )


def _rail(end: _End, ends: Sequence[_End]) -> Rail:
    peers = [each for each in ends if each.node is not end.node and each.address.network == end.address.network]
    return Rail(
        end.twin.interface,
        end.twin.hca,
        str(end.address),
        {each.node.name: str(each.address.ip) for each in peers},
        {each.node.name: each.mac for each in peers},
    )


def warnings(functions: str, shape: str, ports: Sequence[links.Ports], mtu: int) -> list[str]:
    """Return a sentence if the fabric uses one PCIe function of each port, one about a ring's cables, and one about a
    smaller MTU than a direct cable carries.

    ``functions``: "" is a fabric without ports, whose cables are unknown. ``ports``: gb10_fabric_ports of each node.
    """
    half = (
        f"gb10_fabric_functions: {functions} leaves out one PCIe function of each QSFP port, with half of its bandwidth"
    )
    equal = equal_cables([each if isinstance(each, tuple) and len(each) == 2 else () for each in ports])
    cables = (
        "gb10_fabric_ports: a ring with cables between equal ports, which NCCL reaches by merged devices only "
        "(NCCL_IB_MERGE_NICS=1). One owner serves so (tonyd2wild, 2026-08-31); two saw ibv_modify_qp fail with 110 "
        "(eugr/spark-vllm-docker#252), and port 0 to port 1 settled it"
    )
    small = (
        f"gb10_fabric_mtu: {mtu}, but a direct cable carries 9000; prefill was 2 % faster with it between two Sparks "
        "(MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#104)"
    )
    found = [half] * (functions not in ("", "both")) + [cables] * bool(shape == "ring" and equal)
    return found + [small] * bool(functions and shape in ("direct", "ring") and mtu < _CABLE_MTU)


def explain(topology: str, mtu: int, why: str, nodes: Sequence[NodeFabric]) -> list[str]:
    """Return the fabric as lines of text; ``why`` is the reason for the ports, "" if they are given."""
    if not any(node.rails for node in nodes):
        return []
    rails = [f"{node.name}: {', '.join(_shown(rail) for rail in node.rails)}" for node in nodes]
    return [f"{topology}, MTU {mtu}{f'; {links.PORTS}: auto takes {why}' if why else ''}", *rails]


def _shown(rail: Rail) -> str:
    return f"{rail.interface} {rail.address}" + (f" ({rail.hca})" if rail.hca else "")
