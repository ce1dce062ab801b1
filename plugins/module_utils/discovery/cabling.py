# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Derive the topology from the cables and switches between Sparks.

Two ports that see only each other count as a cable. A switch between just two ports looks the same and works the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple, TypeVar

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    AUTO,
    CABLES,
    SPARK_PORTS,
    SWITCHES,
    TOPOLOGIES,
    Topology,
    resolve_topology,
)

End = TypeVar("End")


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
        return len(self.ports) + len(self.unlisted) == 2 and len({port.machine for port in self.ports}) == len(
            self.ports
        )

    def ports_of(self, machine: str) -> list[Port]:
        """Return the ports of one machine."""
        return [port for port in self.ports if port.machine == machine]


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
    """Propose the first topology that connects these machines in this way, the head first.

    All must have been queried. Cables next to switches are ignored.
    """
    if len(names) == 1:
        return Proposal(resolve_topology(AUTO, 1), tuple(names))
    switches = [segment for segment in segments if not segment.is_cable]
    medium, used = (
        (SWITCHES, switches) if switches else (CABLES, [segment for segment in segments if not segment.unlisted])
    )
    for topology, shape in TOPOLOGIES.items():
        if (
            shape.medium == medium
            and shape.least <= len(names) <= shape.most
            and (ports := _arranged(shape, names, used))
        ):
            notes = (*_doubled(names, used), *(_uncrossed(used) if shape.crossed else ()))
            return Proposal(topology, tuple(ports), ports, notes=notes)
    if switches:
        return Proposal(problems=tuple(_off_the_switch(names, switches)))
    return Proposal(problems=(_open(names, segments),))


def _arranged(shape: Topology, names: Sequence[str], segments: Sequence[Segment]) -> dict[str, tuple[int, ...]] | None:
    """Return the machines in the topology's order, each with its ports by position; None if the cables do not match.

    If the topology leaves the number of ports open, the machines use as many as all of them have.
    """
    found = {port: number for number, segment in enumerate(segments) for port in segment.ports}
    for positions in [len(shape.ports)] if shape.ports else range(len(SPARK_PORTS), 0, -1):
        for head in _choices(names[:1], found, positions):
            if ports := _placed(shape, names, found, head):
                return ports
    return None


def _placed(
    shape: Topology, names: Sequence[str], found: Mapping[Port, int], head: tuple[Port, ...]
) -> dict[str, tuple[int, ...]] | None:
    """Place the head with these ports, then one machine after the other: the first whose cables match so far.

    ``found`` are the numbers of the cables or switches at each port.
    """
    placed: dict[str, tuple[int, ...]] = {}
    pairs: set[tuple[int, int]] = set()  # numbers in the topology, and in ``found``
    while len(placed) < len(names):
        expected = [shape.segment(len(placed), position, len(names)) for position in range(len(head))]
        for ports in _choices([name for name in names if name not in placed], found, len(head)) if placed else [head]:
            more = pairs.union(zip(expected, (found[port] for port in ports), strict=True))
            if _is_one_to_one(more):
                pairs = more
                placed[ports[0].machine] = tuple(port.number for port in ports)
                break
        else:
            return None
    return placed


def _choices(names: Sequence[str], found: Mapping[Port, int], positions: int) -> Iterator[tuple[Port, ...]]:
    for name in names:
        yield from permutations(sorted(port for port in found if port.machine == name), positions)


def _is_one_to_one(pairs: Collection[tuple[int, int]]) -> bool:
    return all(len(set(side)) == len(pairs) for side in zip(*pairs, strict=True))


def _off_the_switch(names: Sequence[str], switches: Sequence[Segment]) -> Iterator[Problem]:
    """Report the machines that are not on the switch of most machines."""
    widest = max(switches, key=lambda segment: len({port.machine for port in segment.ports}))
    for name in names:
        if not widest.ports_of(name):
            yield Problem(
                name,
                f"it is not connected to the switch of {', '.join(str(port) for port in widest.ports)}",
                "every Spark on the same switch",
                "connect it to that switch, in the same network",
            )


def _doubled(names: Sequence[str], switches: Sequence[Segment]) -> Iterator[Problem]:
    """Report machines with several ports on one switch."""
    for segment in switches:
        for name in names:
            ports = segment.ports_of(name)
            if len(ports) > 1:
                yield Problem(
                    name,
                    f"ports {' and '.join(str(port.number) for port in ports)} are in the same network",
                    "one port, or a switch (or VLAN) for each port",
                    f"none needed: the inventory uses port {ports[0].number}; two cables are no faster than one",
                )


def _uncrossed(cables: Sequence[Segment]) -> Iterator[Problem]:
    """Report cables between two ports of the same number. NVIDIA cables port 0 to port 1 of the next Spark."""
    for a, b in (segment.ports for segment in cables):
        if a.number == b.number:
            yield Problem(
                f"{a} - {b}",
                "a cable between two ports of the same number",
                "port 0 of one Spark to port 1 of the next all around, as NVIDIA documents",
                "swap the cables of one end, or keep them: the inventory lists for each Spark the port to the next",
            )


def _open(names: Sequence[str], segments: Sequence[Segment]) -> Problem:
    """Return the problem that names the missing cables."""
    if len(names) == 2:
        between = f"no connection between {names[0]} and {names[1]}"
        return Problem("cables", between, "a QSFP cable between both", "connect one; see the notes about their ports")
    parts = _parts(names, segments)
    if len(parts) > 1:
        return Problem(
            "cables",
            f"not all Sparks are connected: {'; '.join(map(' and '.join, parts))}",
            "a ring (port 0 of each to port 1 of the next) or a switch",
            "check the cables between these groups, and the notes about their ports",
        )
    if beyond := _ports([segment for segment in segments if segment.unlisted]):
        through = " and ".join(str(port) for port in sorted(beyond))
        return Problem(
            "cables",
            f"the ring includes an unqueried machine, at {through}",
            "every machine of a ring",
            "make that machine reachable: discovery writes only complete rings",
        )
    used = _ports(segments)
    ends = [port for name in names for port in (Port(name, number) for number in SPARK_PORTS) if port not in used]
    return Problem(
        "cables",
        f"a ring of {len(names)} Sparks lacks the cable between {' and '.join(str(end) for end in ends)}",
        "a closed ring",
        "connect it; see the notes about these ports",
    )


def _ports(segments: Sequence[Segment]) -> set[Port]:
    return {port for segment in segments for port in segment.ports}


def _parts(names: Sequence[str], segments: Sequence[Segment]) -> list[list[str]]:
    """Return the machines in groups that cables connect, in their order."""
    groups = joined([*({name} for name in names), *({port.machine for port in each.ports} for each in segments)])
    return sorted((sorted(group, key=names.index) for group in groups), key=lambda part: names.index(part[0]))


def joined(sets: Iterable[set[End]]) -> list[set[End]]:
    """Return the unions of sets that have elements in common, also through other sets."""
    groups: list[set[End]] = []
    for each in sets:
        touching = [group for group in groups if group & each]
        groups = [group for group in groups if not group & each] + [each.union(*touching)]
    return groups
