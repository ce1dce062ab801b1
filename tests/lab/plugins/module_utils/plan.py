# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a lab: N simulated DGX Sparks on one Linux machine, from names to every link, address and file.

Pure: no input or output here. ``io_build`` builds the plan. Interface names and cabling rules follow a DGX Spark: one
management port (``enP7s7``) and two QSFP ports, each with two PCIe functions, ``enp1s0fXnpX`` and ``enP2p1s0fXnpX``.
A Jetson Thor has no ConnectX: the first lane of its QSFP port is ``mgbe0_0``. Here its management port has the Spark's
name.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    AUTO,
    CABLES,
    SPARK_PORTS,
    SWITCHES,
    TOPOLOGIES,
    Topology,
    entry,
)

MANAGEMENT = "enP7s7"
#: Fabric interfaces in port order, with the short name of the switch's end (IFNAMSIZ allows 15 characters).
FABRIC = {"enp1s0f0np0": "f0", "enP2p1s0f0np0": "P2f0", "enp1s0f1np1": "f1", "enP2p1s0f1np1": "P2f1"}
THOR_FABRIC = {"mgbe0_0": "g0"}
_SPARK = {port: tuple(twin.interface for twin in twins) for port, twins in SPARK_PORTS.items()}
_THOR = {0: tuple(THOR_FABRIC)}
#: MTU of the simulated QSFP switch, so that hosts may use 9000.
SWITCH_MTU = 9216
#: Last octet of the first node's management address; the machine that runs the lab has .1.
FIRST_ADDRESS = 11
MAX_NODES = 200


class LabError(Exception):
    """The lab cannot be planned or built. The message has the place, the reason and the fix."""


@dataclass(frozen=True)
class Bind:
    """A file, folder or device of this machine that nodes share, at ``dest``. Without ``nodes``, every node does.

    Raises LabError for a path that is not valid in nspawn's argument.
    """

    src: str
    dest: str
    writable: bool = False
    nodes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, path in (("src", self.src), ("dest", self.dest)):
            if not re.fullmatch(r"(/[\w.+-]+)+/?", path, re.ASCII):
                expected = "an absolute path of letters, digits and . _ + -"
                raise LabError(f"lab_binds: {name}: {path!r} is not {expected}: use another, or a link to it")

    @property
    def argument(self) -> str:
        """Return the option of systemd-nspawn."""
        return f"--bind{'' if self.writable else '-ro'}={self.src}:{self.dest}"


def bind_arguments(node: str, binds: Iterable[Bind]) -> list[str]:
    """Return the options of systemd-nspawn for a node.

    A node with a device of its own must not create device files: NVIDIA's programs create those of every GPU.
    """
    own = [bind for bind in binds if not bind.nodes or node in bind.nodes]
    closed = ["--drop-capability=CAP_MKNOD"] if any(bind.nodes and bind.src.startswith("/dev/") for bind in own) else []
    return [*(bind.argument for bind in own), *closed]


@dataclass(frozen=True)
class End:
    """One end of a virtual cable. ``netns`` is empty for the machine that runs the lab."""

    netns: str
    name: str
    mac: str
    #: Bridge of ``netns`` that this end is attached to, or empty for a host's own interface.
    bridge: str = ""
    mtu: int = 1500


@dataclass(frozen=True)
class Link:
    """A virtual cable: when one end goes down, the other loses its carrier, as with a DAC."""

    a: End
    b: End


@dataclass(frozen=True)
class LabNode:
    """One simulated Spark, or Thor. A server has no QSFP port."""

    name: str
    #: systemd-nspawn machine name and network namespace, unique on the machine because it contains the lab's name.
    machine: str
    netns: str
    #: Management address, without prefix length.
    address: str
    thor: bool = False
    server: bool = False
    #: Whether it is a virtual machine with a kernel and a disk of its own.
    virtual: bool = False

    @property
    def fabric(self) -> dict[str, str]:
        """Its fabric interfaces, each with the short name of the switch's end."""
        return {} if self.server else THOR_FABRIC if self.thor else FABRIC

    @property
    def ports(self) -> dict[int, tuple[str, ...]]:
        """Its QSFP ports, each with the interfaces of its PCIe functions."""
        return {} if self.server else _THOR if self.thor else _SPARK


@dataclass(frozen=True)
class Lab:
    """All parts of one lab."""

    name: str
    prefix: str
    topology: str
    #: Network namespace of the switches: bridge ``mgmt``, and ``qsfp0`` and so on if the topology has switches.
    switch: str
    bridges: tuple[str, ...]
    nodes: tuple[LabNode, ...]
    links: tuple[Link, ...]

    @property
    def gateway(self) -> str:
        """Management address of the machine that runs the lab."""
        return f"{self.prefix}.1"

    @property
    def uplink(self) -> str:
        """The only interface that the lab adds to the machine itself."""
        return f"{self.name}-mgmt"


@dataclass(frozen=True)
class Observed:
    """The observed state of one node: its stamp ('' if incomplete), its links and whether it is running."""

    stamp: str
    links: frozenset[str]
    running: bool


def _name_problems(name: str) -> Iterable[str]:
    if not re.fullmatch(r"[a-z][a-z0-9]{0,9}", name):
        yield f"lab_name: {name!r}: expected 1 to 10 lower-case letters and digits (interface names have at most 15)"


def checked_name(name: str) -> str:
    """Return ``name`` if it is a valid lab name, else raise LabError."""
    for problem in _name_problems(name):
        raise LabError(problem)
    return name


def _problems(name: str, prefix: str, nodes: list[str]) -> Iterable[str]:
    yield from _name_problems(name)
    if not re.fullmatch(r"\d+\.\d+\.\d+", prefix) or not _is_address(f"{prefix}.1"):
        yield f"lab_prefix: {prefix!r}: expected the first three octets of a private /24, such as 10.88.0"
    if not 1 <= len(nodes) <= MAX_NODES:
        yield f"lab_nodes: {len(nodes)} names: expected 1 to {MAX_NODES}"
    for i, node in enumerate(nodes):
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", node):
            yield f"lab_nodes[{i}]: {node!r}: expected a host name of lower-case letters, digits and hyphens"
        if node == "switch":
            yield f"lab_nodes[{i}]: 'switch' is the name of the lab's switch: choose another"
        if node in nodes[:i]:
            yield f"lab_nodes[{i}]: {node!r} appears twice: host names must differ"


def _cabling_problems(nodes: list[str], topology: str, thors: list[str]) -> Iterable[str]:
    valid = [AUTO, *(name for name, shape in TOPOLOGIES.items() if shape.qsfp)]
    if topology not in valid:
        yield f"lab_topology: {topology!r}: expected one of {', '.join(valid)}"
    elif topology != AUTO and not _fits(entry(topology), len(nodes)):
        yield (
            f"lab_topology: {topology} with {len(nodes)} nodes: expected {entry(topology).expected}: use auto, or "
            "another topology"
        )
    if topology in valid[1:] and entry(topology).medium == CABLES and thors:
        yield f"lab_thors: {', '.join(thors)}: a Thor has no port for topology {topology}: use switch (or auto)"
    for thor in thors:
        if thor not in nodes:
            yield f"lab_thors: {thor!r} is not in lab_nodes: {', '.join(nodes)}"


def _fits(shape: Topology, count: int) -> bool:
    """Return whether a lab can have this many nodes. A single node on a switch is a lab too."""
    return shape.least <= count <= shape.most or (count == 1 and shape.medium == SWITCHES)


def _is_address(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text).is_private
    except ValueError:
        return False


def plan(
    name: str,
    prefix: str,
    nodes: Iterable[str],
    topology: str = "auto",
    thors: Iterable[str] = (),
    servers: Iterable[str] = (),
    virtual: bool = False,
) -> Lab:
    """Plan the lab ``name`` with one simulated machine per entry of ``nodes``: Thors for ``thors``, else Sparks.

    ``servers`` are further machines, with the management port alone.

    ``prefix`` is the management /24 as three octets; node *i* gets ``prefix.(11+i)``. ``topology`` is one of the
    fabric's topologies with QSFP ports, or ``auto`` (direct for 2 Sparks, else switch).
    Raises LabError with all problems at once.
    """
    cabled, servers, thors = ([str(n) for n in given] for given in (nodes, servers, thors))
    names = [*cabled, *servers]
    problems = [*_problems(name, prefix, names), *_cabling_problems(cabled, topology, thors)]
    if virtual and thors:
        problems.append("lab_virtual: true: virtual machines are Sparks: set it to false, or lab_thors to []")
    if problems:
        raise LabError("; ".join(problems))
    if topology == "auto":
        topology = "direct" if len(cabled) == 2 and not thors else "switch"
    switch = f"{name}-switch"
    planned = tuple(
        LabNode(
            n,
            machine=f"{name}-{n}",
            netns=f"{name}-{n}",
            address=f"{prefix}.{FIRST_ADDRESS + i}",
            thor=n in thors,
            server=n in servers,
            virtual=virtual,
        )
        for i, n in enumerate(names)
    )
    links = tuple(_links(name, switch, planned, entry(topology)))
    return Lab(
        name=name,
        prefix=prefix,
        topology=topology,
        switch=switch,
        bridges=tuple(dict.fromkeys(end.bridge for link in links for end in (link.a, link.b) if end.bridge)),
        nodes=planned,
        links=links,
    )


def _mac(lab: str, node: int, port: int, side: int = 0) -> str:
    """Return a locally administered address that is stable across rebuilds.

    Otherwise udev changes a veth's address at the first boot, and its neighbors wait for their ARP entries to expire.
    """
    tag = hashlib.sha256(lab.encode()).digest()
    return f"02:{tag[0]:02x}:{tag[1]:02x}:{tag[2]:02x}:{node:02x}:{side * 16 + port:02x}"


def _links(lab: str, switch: str, nodes: tuple[LabNode, ...], shape: Topology) -> Iterable[Link]:
    # Node numbers start at 1, as in spark1; 0 is the machine that runs the lab.
    yield Link(End("", f"{lab}-mgmt", _mac(lab, 0, 0)), End(switch, "uplink", _mac(lab, 0, 0, side=1), bridge="mgmt"))
    for i, node in enumerate(nodes, start=1):
        yield Link(
            End(node.netns, MANAGEMENT, _mac(lab, i, 0)), End(switch, f"n{i}-m", _mac(lab, i, 0, side=1), bridge="mgmt")
        )
    numbers = {name: number for number, name in enumerate(FABRIC | THOR_FABRIC, start=1)}
    ends = {
        (i, name): End(node.netns, name, _mac(lab, i, numbers[name]))
        for i, node in enumerate(nodes, start=1)
        for name in node.fabric
    }
    for (segment, _function), places in _segments(nodes, shape).items():
        if shape.medium == CABLES:
            here, there = places
            yield Link(ends[here], ends[there])
            continue
        # Both PCIe functions of a port share its cable and so a switch: each answers ARP for the other, as on a Spark.
        for i, name in places:
            port = f"n{i}-{nodes[i - 1].fabric[name]}"
            yield Link(
                ends[i, name],
                End(switch, port, _mac(lab, i, numbers[name], side=1), bridge=f"qsfp{segment}", mtu=SWITCH_MTU),
            )


def _segments(nodes: tuple[LabNode, ...], shape: Topology) -> dict[tuple[int, int], list[tuple[int, str]]]:
    """Return the node numbers and interfaces at each (cable or switch, PCIe function)."""
    segments: dict[tuple[int, int], list[tuple[int, str]]] = {}
    count = sum(not node.server for node in nodes)
    for position, port in enumerate(shape.ports or SPARK_PORTS):
        for i, node in enumerate(nodes, start=1):
            for function, name in enumerate(node.ports.get(port, ())):
                segments.setdefault((shape.segment(i - 1, position, count), function), []).append((i, name))
    return segments


def links_of(lab: Lab, netns: str) -> tuple[Link, ...]:
    """Return the links with an end in ``netns``."""
    return tuple(link for link in lab.links if netns in (link.a.netns, link.b.netns))


def interfaces_of(lab: Lab, netns: str) -> frozenset[str]:
    """Return the names of the planned interfaces in ``netns``."""
    return frozenset(end.name for link in lab.links for end in (link.a, link.b) if end.netns == netns)


def node_files(node: LabNode) -> dict[str, tuple[str, int]]:
    """Return the files specific to one node: path in its root -> (content, mode).

    The management address is in a separate netplan document of the node, so that ``netplan apply`` inside keeps it. An
    empty machine-id makes systemd generate one at the first boot. A Thor has the release file of Jetson Linux, by which
    the nvidia-smi fixture recognizes it.
    """
    netplan = {
        "network": {
            "version": 2,
            "renderer": "networkd",
            "ethernets": {MANAGEMENT: {"dhcp4": False, "dhcp6": False, "addresses": [f"{node.address}/24"]}},
        }
    }
    release = "# R38 (release), REVISION: 2.0, BOARD: FIXTURE of gb10.cluster's lab, EABI: aarch64\n"
    return {
        "etc/hostname": (f"{node.name}\n", 0o644),
        "etc/hosts": (f"127.0.0.1 localhost\n127.0.1.1 {node.name}\n", 0o644),
        "etc/machine-id": ("", 0o444),
        # JSON is valid YAML, and needs no YAML library.
        "etc/netplan/00-management.yaml": (json.dumps(netplan, indent=2) + "\n", 0o600),
        **({"etc/nv_tegra_release": (release, 0o644)} if node.thor else {}),
    }


def stamp(lab: Lab, node: LabNode, inputs: Mapping[str, Any]) -> str:
    """Return a hash of all inputs of ``node``. If it is unchanged, the node on disk can be kept.

    ``inputs`` are the content hashes of inputs outside the plan (base image, extra files, keys, firmware).
    """
    document = {
        "node": asdict(node),
        "links": [asdict(link) for link in links_of(lab, node.netns)],
        "files": node_files(node),
        "inputs": dict(inputs),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def actions(lab: Lab, stamps: Mapping[str, str], observed: Mapping[str, Observed]) -> dict[str, str]:
    """Return each node's action: ``keep``, ``cable``, ``boot``, ``create``, ``recreate`` or ``remove``.

    ``stamps`` maps planned nodes to their expected stamp. ``cable``: the node is up but lacks a link, because its
    neighbor was rebuilt. ``boot``: the node is complete but turned off.
    """
    result = dict.fromkeys(observed, "remove")
    for node in lab.nodes:
        found = observed.get(node.name)
        if found is None:
            result[node.name] = "create"
        elif found.stamp != stamps[node.name]:
            result[node.name] = "recreate"
        elif not found.running:
            result[node.name] = "boot"
        elif not interfaces_of(lab, node.netns) <= found.links:
            result[node.name] = "cable"
        else:
            result[node.name] = "keep"
    return result


def known_hosts(lab: Lab, keys: Mapping[str, str]) -> str:
    """Return a known_hosts file for the nodes' management addresses. ``keys`` maps node names to public host keys."""
    return "".join(f"{node.address} {' '.join(keys[node.name].split()[:2])}\n" for node in lab.nodes)
