# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The links of a fabric: the ports that ``gb10_fabric_ports: auto`` selects, and problems of ports and RDMA devices.

cluster/plan.py documents the shape of a node. The kernel reports carrier only for devices that are administratively up.
The carrier of a device that is down stays unknown, and no device is set up to find out.
Sources: Linux Documentation/ABI/testing/sysfs-class-net (carrier), stable/sysfs-class-infiniband (state, link_layer);
drivers/infiniband/hw/mlx5/main.c, mlx5_query_port_roce: a RoCE port is ACTIVE while its network device is up and has
carrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    NETPLAN_FILE,
    SPARK_PORTS,
    FabricNode,
    Twin,
    devices,
    segment,
)

PORTS = "gb10_fabric_ports"
AUTO = "auto"
#: The ports that auto selects in a ring, in NVIDIA's order: to the next node, then to the previous one.
_RING = (0, 1)
#: The ports of a removal where no cable is detected. The node has a record of everything that a removal restores.
_USUAL = (1,)

Node = Mapping[str, Any]


def carrier(interfaces: Mapping[str, Mapping[str, Any]], port: int) -> bool | None:
    """Return whether all devices of a port that are up have carrier, None if none is up."""
    found = [interfaces[twin.interface] for twin in SPARK_PORTS.get(port, ()) if twin.interface in interfaces]
    reported = [facts["carrier"] for facts in found if facts["up"]]
    return all(reported) if reported else None


def ours(interface: Mapping[str, Any]) -> bool:
    """Return whether an earlier run configured this device."""
    return any(owner["file"] == NETPLAN_FILE for owner in interface["owners"])


def hcas(observed: Mapping[str, Any]) -> dict[str, str]:
    """Return network device -> RDMA device, from the node's sysfs; devices without one are left out."""
    found = {port["interface"]: hca for hca, port in sorted(observed["rdma"].items()) if port["interface"]}
    return found | {name: facts["hca"] for name, facts in observed["interfaces"].items() if facts["hca"]}


def choose(nodes: Sequence[Node], topology: str) -> tuple[list[tuple[int, ...] | None], list[Problem], str]:
    """Return each node's ports, the problems, and auto's choice as text, "" if the ports are given.

    None means unknown ports: the problems of the nodes have the reason, or no port is wanted. A port that an earlier
    run configured counts as cabled, so that a cable that falls out is an error instead of another network.
    """
    given = [node["settings"][PORTS] for node in nodes]
    problems = [
        Problem(f"nodes[{index}].{PORTS}", repr(value), "auto, or a list such as [1]", f"correct {PORTS}")
        for index, value in enumerate(given)
        if value != AUTO and not _is_list(value)
    ]
    automatic = [index for index, value in enumerate(given) if value == AUTO]
    if automatic and len(automatic) < len(nodes):
        other = next(node["name"] for node in nodes if node["settings"][PORTS] != AUTO)
        problems += [
            Problem(f"nodes[{index}].{PORTS}", f"auto for {nodes[index]['name']}, a list for {other}", "one way for all nodes", f"set {PORTS} alike")
            for index in automatic
        ]
    if problems or not automatic:
        return [tuple(value) if _is_list(value) else None for value in given], problems, ""
    if topology == "ring":
        return [_RING] * len(nodes), [], "in a ring, port 0 to the next node and port 1 to the previous"
    if topology not in ("direct", "switch") or not all(node["observed"] for node in nodes):
        return [None] * len(nodes), [], ""
    return _cabled(nodes)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(port, int) for port in value)


def _cabled(nodes: Sequence[Node]) -> tuple[list[tuple[int, ...] | None], list[Problem], str]:
    """Select the ports that are cabled on all nodes, else the only cabled port of each node."""
    cabled = [[port for port in SPARK_PORTS if _is_cabled(node["observed"]["interfaces"], port)] for node in nodes]
    common = tuple(port for port in SPARK_PORTS if all(port in ports for ports in cabled))
    if common:
        others = [f"{_named(ports)} of {node['name']}" for node, ports in zip(nodes, _beside(cabled, common), strict=True) if ports]
        beside = f"; not {' and '.join(others)}, which others lack" if others else ""
        return [common] * len(nodes), [], f"{_named(common)}, with carrier on every node{beside}"
    if all(len(ports) == 1 for ports in cabled):
        own = ", ".join(f"{_named(ports)} of {node['name']}" for node, ports in zip(nodes, cabled, strict=True))
        return [tuple(ports) for ports in cabled], [], f"the only port with carrier on each node: {own}"
    if nodes[0]["removing"]:
        return [_USUAL] * len(nodes), [], ""
    problems = [_uncabled(index, node) for index, (node, ports) in enumerate(zip(nodes, cabled, strict=True)) if not ports]
    if not problems:
        found = "; ".join(f"{_named(ports)} of {node['name']}" for node, ports in zip(nodes, cabled, strict=True))
        fix = f"correct the cables, or list the ports of each node in {PORTS}"
        problems = [Problem(PORTS, f"no port has carrier on every node: {found}", "the same port, or one port of each node", fix)]
    return [None] * len(nodes), problems, ""


def _is_cabled(interfaces: Mapping[str, Mapping[str, Any]], port: int) -> bool:
    return carrier(interfaces, port) or any(twin.interface in interfaces and ours(interfaces[twin.interface]) for twin in SPARK_PORTS[port])


def _beside(cabled: Sequence[Sequence[int]], common: Sequence[int]) -> list[list[int]]:
    return [[port for port in ports if port not in common] for ports in cabled]


def _uncabled(index: int, node: Node) -> Problem:
    """Return why no port of a node can be selected: its devices are down, missing, or without carrier."""
    name, interfaces = node["name"], node["observed"]["interfaces"]
    path = f"nodes[{index}].ports"
    there = [twin.interface for twins in SPARK_PORTS.values() for twin in twins if twin.interface in interfaces]
    down = [interface for interface in there if not interfaces[interface]["up"]]
    if not there:
        names = ", ".join(twin.interface for twins in SPARK_PORTS.values() for twin in twins)
        fix = "check that the ConnectX-7 driver is loaded, or set gb10_fabric_topology: socket"
        return Problem(path, f"{name} has no QSFP port", f"an interface of {names}", fix)
    if down:
        which = f"{', '.join(down)} {'is' if len(down) == 1 else 'are'}"
        found = f"no QSFP port of {name} shows carrier; {which} down, so carrier is unknown"
        fix = f"`sudo ip link set dev {down[0]} up` for each, or list {PORTS}"
        return Problem(path, found, "a port that is up and has carrier", fix)
    return Problem(path, f"no QSFP port of {name} has carrier", "a cabled port", "plug in the cable, and check that the port at its other end is up")


def _named(ports: Sequence[int]) -> str:
    return f"port{'s' * (len(ports) > 1)} {' and '.join(str(port) for port in ports)}"


def check(nodes: Sequence[Node], members: Sequence[FabricNode], topology: str, roce: bool) -> list[Problem]:
    """Return the problems of the links that the fabric will use. With ``roce``, each link needs an RDMA device.

    A removal needs neither carrier nor RDMA.
    """
    problems: list[Problem] = []
    if topology not in ("direct", "ring", "switch", "socket"):
        return problems
    for index, (node, member) in enumerate(zip(nodes, members, strict=True)):
        if not node["observed"] or node["removing"]:
            continue
        problems += _check_interface(index, node, member) if topology == "socket" else _check_carrier(index, nodes, members, topology)
        problems += _check_rdma(index, node, member, topology) if roce else []
    return problems


def _check_interface(index: int, node: Node, member: FabricNode) -> list[Problem]:
    facts = node["observed"]["interfaces"].get(member.interface)
    if not facts or not facts["up"] or facts["carrier"]:
        return []
    found = f"{member.interface} of {node['name']} has no carrier"
    return [Problem(f"nodes[{index}].interface", found, "a link", "check the cable and the switch's port, or correct gb10_fabric_interface")]


def _check_carrier(index: int, nodes: Sequence[Node], members: Sequence[FabricNode], topology: str) -> list[Problem]:
    name, interfaces = nodes[index]["name"], nodes[index]["observed"]["interfaces"]
    ports = [port for port in members[index].ports or () if port in SPARK_PORTS]
    others = [port for port in SPARK_PORTS if port not in ports and carrier(interfaces, port)]
    problems = []
    for position, port in enumerate(members[index].ports or ()):
        if carrier(interfaces, port) is not False or _is_dark(index, position, nodes, members, topology):
            continue
        found = f"port {port} of {name} has no carrier{f', {_named(others)} has' if others else ''}"
        fix = f"set {PORTS}: [{others[0]}]" if others and len(ports) == 1 else f"list only the cabled ports in {PORTS}"
        cable = "check the cable and the port at its other end"
        problems.append(Problem(f"nodes[{index}].ports[{position}]", found, "a link on every port of the fabric", f"{cable}, or {fix}"))
    return problems


def _is_dark(index: int, position: int, nodes: Sequence[Node], members: Sequence[FabricNode], topology: str) -> bool:
    """Return whether a cable's other end is down. Then this end has no carrier until both are configured."""
    if topology == "switch":
        return False
    count = len(nodes)
    here = segment(topology, index, position, count)
    return any(
        carrier(nodes[other]["observed"]["interfaces"], port) is None
        for other, member in enumerate(members)
        if other != index and nodes[other]["observed"]
        for there, port in enumerate(member.ports or ())
        if port in SPARK_PORTS and segment(topology, other, there, count) == here
    )


def _check_rdma(index: int, node: Node, member: FabricNode, topology: str) -> list[Problem]:
    observed, problems = node["observed"], []
    found = hcas(observed)
    used = [(position, twin) for position, port in enumerate(member.ports or ()) for twin in devices(replace(member, ports=(port,)), topology)]
    for position, twin in used:
        if twin.interface in observed["interfaces"]:
            where = f"nodes[{index}].ports[{position}]"
            problems += _check_hca(where, node["name"], observed, twin, found.get(twin.interface, ""), topology)
    if found and not observed["infiniband"]:
        lacks, fix = f"{node['name']} has no /dev/infiniband", "load the module: `sudo modprobe ib_uverbs`; install rdma-core to load it at boot"
        problems.append(Problem(f"nodes[{index}].infiniband", lacks, "the folder that gives programs access to RDMA", fix))
    return problems


def _check_hca(where: str, name: str, observed: Mapping[str, Any], twin: Twin, hca: str, topology: str) -> list[Problem]:
    """Check one RDMA device for NCCL. Without carrier no port is ACTIVE; _check_carrier reports that."""
    facts, port = observed["interfaces"][twin.interface], observed["rdma"].get(hca)
    if port is None:
        sockets = "" if topology == "ring" else ", or set gb10_fabric_transport: socket"
        fix = f"load its driver: `sudo modprobe mlx5_ib`{sockets}"
        return [Problem(where, f"{twin.interface} of {name} has no RDMA device", f"one, such as {twin.hca}", fix)]
    device = f"{hca}, the RDMA device of {twin.interface} of {name},"
    if port["link_layer"] != "Ethernet":
        found = f"{device} has the link layer {port['link_layer'] or 'unknown'}"
        fix = "set its port to Ethernet (mlxconfig, LINK_TYPE), then switch the node off and on"
        return [Problem(where, found, "Ethernet, which RoCE needs", fix)]
    if facts["up"] and facts["carrier"] and port["state"] != "ACTIVE":
        fix = f"check `rdma link show {hca}/1` and `sudo dmesg`; reboot the node if its driver failed"
        found = f"{device} is {port['state'] or 'in an unknown state'}"
        return [Problem(where, found, "ACTIVE, as the link has carrier", fix)]
    return []


def explain(topology: str, why: str, planned: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fabric as lines of text; ``why`` is from choose(), ``planned`` are the nodes of the plan."""
    if not any(node["rails"] for node in planned):
        return []
    rails = [f"{node['name']}: {', '.join(_rail(rail) for rail in node['rails'])}" for node in planned]
    return [f"{topology}{f'; {PORTS}: auto takes {why}' if why else ''}", *rails]


def _rail(rail: Mapping[str, Any]) -> str:
    return f"{rail['interface']} {rail['address']}" + (f" ({rail['hca']})" if rail["hca"] else "")
