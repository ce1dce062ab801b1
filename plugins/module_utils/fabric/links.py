# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The links of a fabric: the ports that ``gb10_fabric_ports: auto`` selects, and problems of ports and RDMA devices.

The kernel reports carrier only for devices that are administratively up.
The carrier of a device that is down stays unknown, and no device is set up to find out.
Sources: Linux Documentation/ABI/testing/sysfs-class-net (carrier), stable/sysfs-class-infiniband (state, link_layer);
drivers/infiniband/hw/mlx5/main.c, mlx5_query_port_roce: a RoCE port is ACTIVE while its network device is up and has
carrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Union

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Interface, Network
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    DEVICE,
    FUNCTIONS,
    NETPLAN_FILE,
    SPARK_PORTS,
    SWITCHES,
    TOPOLOGIES,
    FabricNode,
    Twin,
    devices,
    entry,
    segment,
    twins,
)

PORTS = "gb10_fabric_ports"
#: A node's value of gb10_fabric_ports: a list, auto, or None for an invalid value, which is reported already.
#: pylint knows no operator | of Literal.
Ports = Union[tuple[int, ...], Literal["auto"], None]  # noqa: UP007
#: The ports of a removal where no cable is detected. The node has a record of everything that a removal restores.
_USUAL = (1,)


def carrier(interfaces: Mapping[str, Interface], port: int, functions: str = "both") -> bool | None:
    """Return whether all devices of these PCIe functions of a port that are up have carrier, None if none is up."""
    found = [interfaces[twin.interface] for twin in twins(port, functions) if twin.interface in interfaces]
    up = [facts.carrier for facts in found if facts.up]
    return all(up) if up else None


def one_function(interface: str, port: int) -> str:
    """Return how a port is repaired whose PCIe function with this device does not work, or used with the other one.

    Causes, as users report: cheap QSFP28 and QSFP56 cables; a BIOS before 2026-04; functions lost after a warm reboot.
    """
    other = FUNCTIONS[2] if SPARK_PORTS[port][0].interface == interface else FUNCTIONS[1]
    return (
        "try another cable (some cheap QSFP28 and QSFP56 ones connect one function), update the BIOS to "
        "2026-04 or newer (fwupdmgr update), then switch the node off and unplug its power supply for a "
        f"minute, because a reboot is not enough; or set gb10_fabric_functions: {other}, for one rail with "
        "half of the bandwidth"
    )


def _half(path: str, name: str, port: int, interfaces: Mapping[str, Interface]) -> Problem | None:
    """Return the problem of a port with carrier on one of its two PCIe functions, None if they are alike."""
    there = [
        twin.interface for twin in SPARK_PORTS[port] if twin.interface in interfaces and interfaces[twin.interface].up
    ]
    dead = [interface for interface in there if not interfaces[interface].carrier]
    if len(there) < len(SPARK_PORTS[port]) or len(dead) != 1:
        return None
    (live,) = set(there) - set(dead)
    found = f"port {port} of {name} has carrier on {live} only, not on {dead[0]}, its other PCIe function"
    return Problem(path, found, "carrier on both functions", one_function(dead[0], port))


def ours(interface: Interface) -> bool:
    """Return whether an earlier run configured this device."""
    return any(owner.file == NETPLAN_FILE for owner in interface.owners)


Choice = tuple[Sequence[tuple[int, ...] | None], list[Problem], str]


def choose(nodes: Sequence[FabricNode], given: Sequence[Ports], topology: str) -> Choice:
    """Return each node's ports, the problems, and auto's choice as text, "" if the ports are given.

    None means unknown ports: the problems of the nodes have the reason, or no port is wanted. A port that an earlier
    run configured counts as cabled, so that a cable that falls out is an error instead of another network.
    """
    if any(value != "auto" for value in given):
        return [None if value == "auto" else value for value in given], _mixed(nodes, given), ""
    shape = TOPOLOGIES.get(topology)
    if shape and shape.ports:
        return [shape.ports] * len(nodes), [], shape.ports_text
    read = [node.network for node in nodes if node.network]
    if not shape or not shape.qsfp or len(read) != len(nodes):
        return [None] * len(nodes), [], ""
    return _cabled(nodes, read)


def _mixed(nodes: Sequence[FabricNode], given: Sequence[Ports]) -> list[Problem]:
    """Return a problem for each node that selects its ports automatically while another node lists them."""
    other = next(node.name for node, value in zip(nodes, given, strict=True) if value != "auto")
    return [
        Problem(
            f"nodes[{index}].{PORTS}",
            f"auto for {nodes[index].name}, a list for {other}",
            "one way for all nodes",
            f"set {PORTS} alike",
        )
        for index, value in enumerate(given)
        if value == "auto"
    ]


def _cabled(nodes: Sequence[FabricNode], networks: Sequence[Network]) -> Choice:
    """Select the ports that are cabled on all nodes, else the only cabled port of each node."""
    cabled = [
        tuple(port for port in SPARK_PORTS if _is_cabled(network.interfaces, port, node.functions))
        for node, network in zip(nodes, networks, strict=True)
    ]
    common = tuple(port for port in SPARK_PORTS if all(port in ports for ports in cabled))
    if common:
        rest = _of_nodes(nodes, [[port for port in ports if port not in common] for ports in cabled])
        unused = f"; not {' and '.join(rest)}, which others lack" if rest else ""
        return [common] * len(nodes), [], f"{_named(common)}, with carrier on every node{unused}"
    if all(len(ports) == 1 for ports in cabled):
        return cabled, [], f"the only port with carrier on each node: {', '.join(_of_nodes(nodes, cabled))}"
    if nodes[0].removing:
        return [_USUAL] * len(nodes), [], ""
    return [None] * len(nodes), _no_common_port(nodes, networks, cabled), ""


def _no_common_port(
    nodes: Sequence[FabricNode], networks: Sequence[Network], cabled: Sequence[Sequence[int]]
) -> list[Problem]:
    """Return why no port can be selected: nodes without a cable, or else different ports."""
    uncabled = [index for index, ports in enumerate(cabled) if not ports]
    if uncabled:
        return [_uncabled(index, nodes[index], networks[index].interfaces) for index in uncabled]
    found = f"no port has carrier on every node: {'; '.join(_of_nodes(nodes, cabled))}"
    fix = f"correct the cables, or list the ports of each node in {PORTS}"
    return [Problem(PORTS, found, "the same port, or one port of each node", fix)]


def _is_cabled(interfaces: Mapping[str, Interface], port: int, functions: str) -> bool:
    used = [interfaces[twin.interface] for twin in twins(port, functions) if twin.interface in interfaces]
    return carrier(interfaces, port, functions) or any(map(ours, used))


def _of_nodes(nodes: Sequence[FabricNode], ports: Sequence[Sequence[int]]) -> list[str]:
    return [f"{_named(some)} of {node.name}" for node, some in zip(nodes, ports, strict=True) if some]


def _uncabled(index: int, node: FabricNode, interfaces: Mapping[str, Interface]) -> Problem:
    """Return why no port of a node can be selected: its devices are down, missing, or without carrier."""
    path, name = f"nodes[{index}].ports", node.name
    if half := next(filter(None, (_half(path, name, port, interfaces) for port in SPARK_PORTS)), None):
        return half
    usual = [twin.interface for twins in SPARK_PORTS.values() for twin in twins]
    there = [interface for interface in usual if interface in interfaces]
    down = [interface for interface in there if not interfaces[interface].up]
    if not there:
        fix = "check that the ConnectX-7 driver is loaded, or set gb10_fabric_topology: socket"
        return Problem(path, f"{name} has no QSFP port", f"an interface of {', '.join(usual)}", fix)
    if down:
        which = f"{', '.join(down)} {'is' if len(down) == 1 else 'are'}"
        found = f"no QSFP port of {name} shows carrier; {which} down, so carrier is unknown"
        fix = f"`sudo ip link set dev {down[0]} up` for each, or list {PORTS}"
        return Problem(path, found, "a port that is up and has carrier", fix)
    return Problem(
        path,
        f"no QSFP port of {name} has carrier",
        "a cabled port",
        "plug in the cable, and check that the port at its other end is up",
    )


def _named(ports: Sequence[int]) -> str:
    return f"port{'s' * (len(ports) > 1)} {' and '.join(str(port) for port in ports)}"


def check(nodes: Sequence[FabricNode], topology: str, roce: bool) -> list[Problem]:
    """Return the problems of the links that the fabric will use. With ``roce``, each link needs an RDMA device.

    A removal needs neither carrier nor RDMA.
    """
    problems: list[Problem] = []
    shape = TOPOLOGIES.get(topology)
    if not shape or not shape.medium:
        return problems
    for index, node in enumerate(nodes):
        if not node.network or node.removing:
            continue
        if shape.medium == DEVICE:
            problems += _check_interface(index, node, node.network)
        else:
            problems += _check_carrier(index, nodes, node.network.interfaces, topology)
        problems += _check_rdma(index, node, node.network, topology) if roce else []
    return problems


def _check_interface(index: int, node: FabricNode, network: Network) -> list[Problem]:
    facts = network.interfaces.get(node.interface)
    if not facts or not facts.up or facts.carrier:
        return []
    found = f"{node.interface} of {node.name} has no carrier"
    return [
        Problem(
            f"nodes[{index}].interface",
            found,
            "a link",
            "check the cable and the switch's port, or correct gb10_fabric_interface",
        )
    ]


def _check_carrier(
    index: int, nodes: Sequence[FabricNode], interfaces: Mapping[str, Interface], topology: str
) -> list[Problem]:
    node = nodes[index]
    ports = [port for port in node.ports or () if port in SPARK_PORTS]
    others = [port for port in SPARK_PORTS if port not in ports and carrier(interfaces, port, node.functions)]
    only = f"set {PORTS}: [{others[0]}]" if others and len(ports) == 1 else f"list only the cabled ports in {PORTS}"
    problems = []
    for position, port in enumerate(node.ports or ()):
        if carrier(interfaces, port, node.functions) is not False or _is_dark(index, position, nodes, topology):
            continue
        path = f"nodes[{index}].ports[{position}]"
        if half := _half(path, node.name, port, interfaces):
            problems.append(half)
            continue
        found = f"port {port} of {node.name} has no carrier{f', {_named(others)} has' if others else ''}"
        fix = f"check the cable and the port at its other end, or {only}"
        problems.append(Problem(path, found, "a link on every port of the fabric", fix))
    return problems


def _is_dark(index: int, position: int, nodes: Sequence[FabricNode], topology: str) -> bool:
    """Return whether a cable's other end is down. Then this end has no carrier until both are configured."""
    if entry(topology).medium == SWITCHES:
        return False
    here = segment(topology, index, position, len(nodes))
    return any(
        carrier(node.network.interfaces, port, node.functions) is None
        for other, node in enumerate(nodes)
        if other != index and node.network
        for there, port in enumerate(node.ports or ())
        if port in SPARK_PORTS and segment(topology, other, there, len(nodes)) == here
    )


def _check_rdma(index: int, node: FabricNode, network: Network, topology: str) -> list[Problem]:
    problems, found = [], network.hcas
    used = [
        (position, twin)
        for position, port in enumerate(node.ports or ())
        for twin in devices(replace(node, ports=(port,)), topology)
    ]
    for position, twin in used:
        if twin.interface in network.interfaces:
            where = f"nodes[{index}].ports[{position}]"
            problems += _check_hca(where, node.name, network, twin, found.get(twin.interface, ""), topology)
    if found and not network.infiniband:
        lacks, fix = (
            f"{node.name} has no /dev/infiniband",
            "load the module: `sudo modprobe ib_uverbs`; install rdma-core to load it at boot",
        )
        problems.append(
            Problem(f"nodes[{index}].infiniband", lacks, "the folder that gives programs access to RDMA", fix)
        )
    return problems


def _check_hca(where: str, name: str, network: Network, twin: Twin, hca: str, topology: str) -> list[Problem]:
    """Check one RDMA device for NCCL. Without carrier no port is ACTIVE; _check_carrier reports that."""
    facts, port = network.interfaces[twin.interface], network.rdma.get(hca)
    if port is None:
        sockets = "" if entry(topology).one_transport else ", or set gb10_fabric_transport: socket"
        fix = f"load its driver: `sudo modprobe mlx5_ib`{sockets}"
        return [Problem(where, f"{twin.interface} of {name} has no RDMA device", f"one, such as {twin.hca}", fix)]
    device = f"{hca}, the RDMA device of {twin.interface} of {name},"
    if port.link_layer != "Ethernet":
        found = f"{device} has the link layer {port.link_layer or 'unknown'}"
        fix = "set its port to Ethernet (mlxconfig, LINK_TYPE), then switch the node off and on"
        return [Problem(where, found, "Ethernet, which RoCE needs", fix)]
    if facts.up and facts.carrier and port.state != "ACTIVE":
        fix = f"check `rdma link show {hca}/1` and `sudo dmesg`; reboot the node if its driver failed"
        found = f"{device} is {port.state or 'in an unknown state'}"
        return [Problem(where, found, "ACTIVE, as the link has carrier", fix)]
    return []
