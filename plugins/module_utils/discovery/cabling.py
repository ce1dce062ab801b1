# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Derive the topology from the cables and switches between Sparks.

Two ports that see only each other count as a cable. A switch between just two ports looks the same and works the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS


class Port(NamedTuple):
    """A QSFP port of a queried machine."""

    machine: str
    number: int

    def __str__(self) -> str:
        return f"{self.machine} port {self.number}"


@dataclass(frozen=True)
class Segment:
    """Ports that see each other, in the order of the machines, and the unqueried machines among them."""

    ports: tuple[Port, ...]
    unlisted: frozenset[str] = frozenset()

    @property
    def is_cable(self) -> bool:
        """Whether a direct cable can be the connection."""
        return len(self.ports) + len(self.unlisted) == 2 and len({port.machine for port in self.ports}) == len(self.ports)


@dataclass(frozen=True)
class Proposal:
    """``machines`` in the order of the inventory; ``ports`` as gb10_fabric_ports expects them.

    Without a topology, ``problems`` have the reasons.
    """

    topology: str = ""
    machines: tuple[str, ...] = ()
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()


def propose(names: Sequence[str], segments: Sequence[Segment]) -> Proposal:
    """Propose a topology for these machines, the head first; all must have been queried."""
    switches = [segment for segment in segments if not segment.is_cable]
    cables = [segment.ports for segment in segments if segment.is_cable and not segment.unlisted]
    if len(names) == 1:
        return Proposal("none", (names[0],))
    if switches:
        return _switch(names, switches)
    if len(names) > 2:
        return _ring(names, cables, {port for segment in segments if segment.unlisted for port in segment.ports})
    if cables:
        return Proposal("direct", tuple(names), {name: tuple(ends[side].number for ends in cables) for side, name in enumerate(names)})
    between = f"no connection between {names[0]} and {names[1]}"
    problem = Problem("cables", between, "a QSFP cable between both", "connect one; see the notes about their ports")
    return Proposal(problems=(problem,))


def _switch(names: Sequence[str], switches: Sequence[Segment]) -> Proposal:
    """Propose a switch topology. Every machine must be on the same switch.

    With two switches (one for each rail) a machine's ports are listed in the switches' order.
    """
    common = [segment for segment in switches if {port.machine for port in segment.ports} == set(names)]
    if not common:
        widest = max(switches, key=lambda segment: len({port.machine for port in segment.ports}))
        there = {port.machine for port in widest.ports}
        problems = [
            Problem(
                name,
                f"it is not connected to the switch of {', '.join(str(port) for port in widest.ports)}",
                "every Spark on the same switch",
                "connect it to that switch, in the same network",
            )
            for name in names
            if name not in there
        ]
        return Proposal(problems=tuple(problems))
    ports = {name: tuple(next(port.number for port in segment.ports if port.machine == name) for segment in common) for name in names}
    notes = [
        Problem(
            name,
            f"ports {' and '.join(str(port.number) for port in doubled)} are in the same network",
            "one port, or a switch (or VLAN) for each port",
            f"none needed: the inventory uses port {doubled[0].number}; two cables are no faster than one",
        )
        for segment in common
        for name in names
        if len(doubled := [port for port in segment.ports if port.machine == name]) > 1
    ]
    return Proposal("switch", tuple(names), ports, notes=tuple(notes))


def _ring(names: Sequence[str], cables: Sequence[tuple[Port, ...]], beyond: Collection[Port]) -> Proposal:
    """Follow the cables from the head's lower port. NVIDIA cables port 0 to port 1 of the next Spark.

    ``beyond`` are the ports that lead to unqueried machines.
    """
    links: dict[str, dict[int, Port]] = {name: {} for name in names}
    for a, b in cables:
        links[a.machine][a.number] = b
        links[b.machine][b.number] = a
    if any(len(ends) < 2 for ends in links.values()):
        return Proposal(problems=_open(names, links, beyond))
    order: list[str] = []
    ports: dict[str, tuple[int, ...]] = {}
    here = Port(names[0], min(links[names[0]]))
    while here.machine not in order:
        back = next(number for number in links[here.machine] if number != here.number)
        order.append(here.machine)
        ports[here.machine] = (here.number, back)
        entry = links[here.machine][here.number]
        here = Port(entry.machine, next(number for number in links[entry.machine] if number != entry.number))
    if len(order) != len(names):
        return Proposal(problems=_open(names, links, beyond))
    notes = [
        Problem(
            f"{a} - {b}",
            "a cable between two ports of the same number",
            "port 0 of one Spark to port 1 of the next all around, as NVIDIA documents",
            "swap the cables of one end, or keep them: the inventory lists for each Spark the port to the next",
        )
        for a, b in cables
        if a.number == b.number
    ]
    return Proposal("ring", tuple(order), ports, notes=tuple(notes))


def _open(names: Sequence[str], links: Mapping[str, Mapping[int, Port]], beyond: Collection[Port]) -> tuple[Problem, ...]:
    """Return the problems that name a ring's missing cables."""
    groups: list[list[str]] = []
    for name in names:
        if not any(name in group for group in groups):
            group = [name]
            for member in group:  # the loop appends to it
                group += {port.machine for port in links[member].values()}.difference(group)
            groups.append(group)
    if len(groups) > 1:
        joined = "; ".join(" and ".join(sorted(group, key=names.index)) for group in groups)
        return (
            Problem(
                "cables",
                f"not all Sparks are connected: {joined}",
                "a ring (port 0 of each to port 1 of the next) or a switch",
                "check the cables between these groups, and the notes about their ports",
            ),
        )
    if beyond:
        through = " and ".join(str(port) for port in sorted(beyond))
        return (
            Problem(
                "cables",
                f"the ring includes an unqueried machine, at {through}",
                "every machine of a ring",
                "make that machine reachable: discovery writes only complete rings",
            ),
        )
    ends = [Port(name, next(number for number in SPARK_PORTS if number not in links[name])) for name in names if len(links[name]) == 1]
    return (
        Problem(
            "cables",
            f"a ring of {len(names)} Sparks lacks the cable between {' and '.join(str(end) for end in ends)}",
            "a closed ring",
            "connect it; see the notes about these ports",
        ),
    )
