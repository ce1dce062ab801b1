# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Derive cables, topology and cabling errors from the neighbors that each machine sees on its QSFP ports.

A machine is a mapping::

    {"name": str,            # Ansible's name for it in this run
     "unreachable": str,     # why it could not be queried, or ""
     "observed": {...},      # its answer, validated by answer.py; {} without an answer or after an error
     "invalid": [{...}],     # the errors of the answer as fields of Problem; may be absent
     "address": str,         # its address; on a cable with the zone of the machine that sees it
     # arguments for ssh; local: this very machine
     "login": {"user": str, "key": str, "arguments": str, "port": int, "local": bool},
     # and for a machine that was found on a cable:
     "via": str, "port": int,        # the machine and the port that it was seen from
     "macs": [str], "host_key": str, # as reported from there
     "label": str,                   # the announced name, or ""
     "direct": str}                  # why its management address is unreachable from the controller, or ""

Both PCIe functions of a port share the cable, so a function may see its own port's other one, even on a direct cable.
Machines are therefore counted, not MAC addresses.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.answer import MACHINES
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.cabling import (
    Port,
    Proposal,
    Segment,
    joined,
    propose,
)
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.parse import PORT_OF
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

Machine = Mapping[str, Any]
#: Why a machine on a cable was not queried, and why the controller does not reach it without the cable.
NO_HOST_KEY, NO_ADDRESS = "it has no ed25519 host key on port 22", "it has no IPv4 address on RJ45 or Wi-Fi"
#: Names with a special meaning for Ansible or the playbooks.
_RESERVED = frozenset({"all", "ungrouped", "localhost", "gb10_cluster", "head", "worker"})


@dataclass(frozen=True)
class Discovery:
    """``problems`` keep the inventory from being written, ``notes`` do not."""

    proposal: Proposal = field(default_factory=Proposal)
    segments: tuple[Segment, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()


def pending_hosts(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return the machines seen on cables that were not yet queried or tried, one unqueried mapping (as above) each.

    Returns none if the total would exceed MACHINES, because a machine may report an endless list of others.
    """
    found = _unqueried(machines)
    return found if len(machines) + len(found) <= MACHINES else []


def _unqueried(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    known = _owners(machines).keys() | {
        mac for machine in machines if not machine["observed"] for mac in machine.get("macs", [])
    }
    identities = _identities(machines)
    found: dict[str, dict[str, Any]] = {}
    for machine, port, neighbor in _sightings(machines):
        if neighbor["mac"] in known:
            continue
        pending = found.setdefault(
            identities[neighbor["mac"]],
            {
                "name": f"found-{neighbor['mac'].replace(':', '')}",
                "via": machine["name"],
                "port": port,
                "macs": [],
                "address": "",
                "host_key": "",
                "label": "",
                "login": {**machine["login"], "port": 22, "local": False},
                "unreachable": "",
                "observed": {},
                "direct": "",
            },
        )
        pending["macs"] += [neighbor["mac"]] if neighbor["mac"] not in pending["macs"] else []
        pending["label"] = pending["label"] or neighbor["name"]
        if neighbor["host_key"] and not pending["host_key"]:
            pending.update(via=machine["name"], port=port, address=neighbor["address"], host_key=neighbor["host_key"])
    return list(found.values())


def can_be_queried(machine: Machine) -> bool:
    """Return whether Ansible can verify the machine: a given one as ssh does, one on a cable by its host key."""
    return "via" not in machine or bool(machine["host_key"])


def answered(machine: Machine, observed: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return a machine with its answer, not yet validated, or with the reason why it has none."""
    found = {**machine, "unreachable": reason, "observed": {} if reason else observed}
    return {**found, "direct": NO_ADDRESS} if "via" in machine else found


def settled(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return the machines under their inventory names.

    A name from the user is kept unless it is an address. Else the host name is used, with a number if it is taken.
    The given machines keep their order; the others follow by name.
    """
    names = {
        machine["name"]: machine["name"] for machine in machines if not machine["observed"] or not _is_nameless(machine)
    }
    for machine in machines:
        if machine["name"] not in names:
            hostname = machine["observed"]["hostname"].lower()
            base = "spark" if hostname in _RESERVED else hostname
            free = (
                name
                for name in (base, *(f"{base}-{number}" for number in range(2, len(machines) + 2)))
                if name not in names.values()
            )
            names[machine["name"]] = next(free)
    renamed = [
        {**machine, "name": names[machine["name"]], **({"via": names[machine["via"]]} if "via" in machine else {})}
        for machine in machines
    ]
    # Found machines come in arbitrary order. The name's length sorts spark2 before spark10.
    return sorted(
        renamed, key=lambda machine: (1, len(machine["name"]), machine["name"]) if "via" in machine else (0, 0, "")
    )


def _is_nameless(machine: Machine) -> bool:
    try:
        ipaddress.ip_address(machine["name"])
    except ValueError:
        return "via" in machine or machine["name"] in _RESERVED
    return True


def discover(machines: Sequence[Machine], partial: bool = False) -> Discovery:
    """Find the cables and propose a topology for the Sparks that answered.

    ``machines`` has the given ones first, and the head before all.

    With ``partial``, a machine that could not be queried is only a note.
    """
    members = [machine for machine in machines if _is_spark(machine)]
    names = [machine["name"] for machine in members]
    segments = _segments(machines, names)
    silent = [problem for machine in members for problem in _silent_ports(machine, segments)]
    # A Spark that sees no other machine is single only if no cable is connected.
    alone = len(names) == 1 and not partial
    failed, tolerated = _failed_queries(machines, segments, partial and bool(members))
    problems = [*_twice(machines), *_not_direct(members), *(silent if alone else ()), *failed, *_too_many(machines)]
    notes = [*(note for machine in members for note in _port_notes(machine)), *(() if alone else silent), *tolerated]
    # A machine that is counted twice would cause misleading topology errors.
    if not members or any(_twice(machines)):
        return Discovery(problems=tuple(problems), notes=tuple(notes))
    proposal = propose(names, segments)
    return Discovery(proposal, tuple(segments), (*problems, *proposal.problems), (*proposal.notes, *notes))


def _is_spark(machine: Machine) -> bool:
    """Return whether a machine answered and is a Spark. A found one may be a server that accepts our login."""
    observed = machine["observed"]
    return bool(observed) and ("via" not in machine or not PORT_OF.keys().isdisjoint(observed["interfaces"]))


def _sightings(machines: Sequence[Machine]) -> Iterator[tuple[Machine, int, Mapping[str, str]]]:
    for machine in machines:
        for interface, neighbors in machine["observed"].get("neighbors", {}).items():
            for neighbor in neighbors:
                yield machine, PORT_OF[interface], neighbor


def _owners(machines: Sequence[Machine]) -> dict[str, tuple[str, int | None]]:
    """Return MAC address -> (machine, QSFP port or None) of every queried machine.

    A bridge may share a port's MAC address.
    """
    owners: dict[str, tuple[str, int | None]] = {}
    for machine in machines:
        for interface, facts in machine["observed"].get("interfaces", {}).items():
            if facts["mac"] and (interface in PORT_OF or facts["mac"] not in owners):
                owners[facts["mac"]] = (machine["name"], PORT_OF.get(interface))
    return owners


def _identities(machines: Sequence[Machine]) -> dict[str, str]:
    """Return MAC address -> its machine's identity: the host key if known, because both PCIe functions share it."""
    identities: dict[str, str] = {}
    for _machine, _port, neighbor in _sightings(machines):
        identities[neighbor["mac"]] = neighbor["host_key"] or identities.get(neighbor["mac"], neighbor["mac"])
    return identities


def _segments(machines: Sequence[Machine], names: Sequence[str]) -> list[Segment]:
    identities = _identities(machines)
    order = {name: index for index, name in enumerate(names)}

    def place(port: Port) -> tuple[int, int]:
        return order[port.machine], port.number

    segments = []
    for group in _connected(machines, names):
        ports = sorted((end for end in group if isinstance(end, Port)), key=place)
        segments.append(Segment(tuple(ports), frozenset(identities[end] for end in group if isinstance(end, str))))
    # Drop segments of a port that sees only its own other PCIe function.
    joined = [segment for segment in segments if len(segment.ports) + len(segment.unlisted) > 1]
    return sorted(joined, key=lambda segment: place(segment.ports[0]))


def _connected(machines: Sequence[Machine], names: Sequence[str]) -> list[set[Port | str]]:
    """Return groups of ends that see each other: ports of queried machines, and MAC addresses of others."""
    owners = _owners(machines)
    cables: list[set[Port | str]] = []
    for machine, number, neighbor in _sightings(machines):
        if machine["name"] in names:
            owner, other = owners.get(neighbor["mac"], ("", None))
            seen = Port(owner, other) if owner in names and other is not None else neighbor["mac"]
            cables.append({Port(machine["name"], number), seen})
    return joined(cables)


def _twice(machines: Sequence[Machine]) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for machine in machines:
        facts = machine["observed"].get("interfaces", {})
        own = {facts[name]["mac"] for name in PORT_OF if name in facts and facts[name]["mac"]}
        same = {owners[mac] for mac in own if mac in owners}
        for other in sorted(same):
            yield Problem(
                machine["name"], f"it is the same machine as {other}", "each machine once", "give one of its addresses"
            )
        owners |= dict.fromkeys(own, machine["name"])


def _too_many(machines: Sequence[Machine]) -> Iterator[Problem]:
    unqueried = _unqueried(machines)
    count = len(machines) + len(unqueried)
    if count > MACHINES:
        seers = sorted({str(Port(machine["via"], machine["port"])) for machine in unqueried})
        fix = f"find the machines behind {', '.join(seers[:5])} and disconnect them from that network"
        yield Problem("cables", f"{count} machines are seen", f"at most {MACHINES}; the rest is not queried", fix)


def _failed_queries(
    machines: Sequence[Machine], segments: Sequence[Segment], partial: bool
) -> tuple[list[Problem], list[Problem]]:
    """Return the problems and the notes about machines that could not be queried or gave an invalid answer."""
    problems: list[Problem] = []
    notes: list[Problem] = []
    for machine in machines:
        if machine["unreachable"]:
            # A machine without SSH on a switch may be the switch itself. At the end of a cable it is a Spark.
            tolerated = partial or _may_be_the_switch(machine, segments)
            (notes if tolerated else problems).append(_query_problem(machine, machines))
        (notes if partial else problems).extend(Problem(**problem) for problem in machine.get("invalid", ()))
    return problems, notes


def _may_be_the_switch(machine: Machine, segments: Sequence[Segment]) -> bool:
    if "via" not in machine or machine["host_key"]:
        return False
    seen = Port(machine["via"], machine["port"])
    return any(seen in segment.ports and not segment.is_cable for segment in segments)


def _query_problem(machine: Machine, machines: Sequence[Machine]) -> Problem:
    reason = machine["unreachable"].removeprefix("Task failed: ").rstrip(".")
    if "via" not in machine:
        fix = causes.fix(reason, machine["login"]["user"], machine["address"])
        return Problem(machine["name"], causes.short(reason), "a login from the controller", fix)
    label = f" ({machine['label']})" if machine["label"] else ""
    where = str(Port(machine["via"], machine["port"]))
    found = f"found a machine{label}, {', '.join(machine['macs'])}, that cannot be queried: {reason}"
    without = "-e discover_partial=true writes the inventory without it"
    if not machine["host_key"]:
        fix = f"start sshd there if it is a Spark; or {without}"
        return Problem(where, found, "sshd on every Spark; a switch may have none", fix)
    expected = "a login with the same user and key as for the machine that sees it"
    fix = f"try `{try_command(machine, machines)}` and install your public key there; or {without}"
    return Problem(where, found, expected, fix)


def try_command(machine: Machine, machines: Sequence[Machine]) -> str:
    """Return the ssh command for a person to log in to a machine that was found on a cable."""
    named = {other["name"]: other for other in machines}
    hops: list[str] = []
    hop = named[machine["via"]]
    while not hop["login"]["local"]:
        # ssh passes the last hop to another ssh in a ProxyCommand, which reads %% as %, and so on for each earlier hop.
        hops.insert(0, _target(hop, "[{}]" if ":" in hop["address"] else "{}").replace("%", "%" * 2 ** (len(hops) + 1)))
        if "via" not in hop:
            break
        hop = named[hop["via"]]
    jump = f"-J {shlex.quote(','.join(hops))} " if hops else ""
    return f"ssh {jump}{shlex.quote(_target(machine))}"


def _target(machine: Machine, form: str = "{}") -> str:
    user = machine["login"]["user"]
    return (f"{user}@" if user else "") + form.format(machine["address"])


def _not_direct(machines: Sequence[Machine]) -> Iterator[Problem]:
    for machine in machines:
        if machine["observed"] and machine.get("direct"):
            yield Problem(
                machine["observed"]["hostname"],
                machine["direct"].removeprefix("Task failed: ").rstrip("."),
                "an address that reaches this machine without the cable, whose addresses will change",
                "connect its RJ45 socket or Wi-Fi to your network, and run again",
            )


def _port_notes(machine: Machine) -> Iterator[Problem]:
    """Return the notes about a machine's ports. Notes do not block the inventory."""
    interfaces = machine["observed"]["interfaces"]
    for note in machine["observed"]["notes"]:
        expected = "LLDP and mDNS data, which is optional"
        yield Problem(machine["name"], note, expected, "-e discover_become=true if permission was denied")
    if not PORT_OF.keys() & interfaces.keys():
        yield Problem(
            machine["name"],
            "it has none of the QSFP interfaces of a Spark",
            ", ".join(PORT_OF),
            "check that this is a Spark",
        )
        return
    for number, twins in SPARK_PORTS.items():
        yield from _twin_notes(Port(machine["name"], number), [twin.interface for twin in twins], interfaces)


def _twin_notes(port: Port, names: Sequence[str], interfaces: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Compare the interfaces of a port's two PCIe functions, which share its cable."""
    where = str(port)
    for name in names:
        if name not in interfaces:
            fix = "check the driver, with lspci and ibdev2netdev"
            yield Problem(where, f"{name} does not exist", "both PCIe functions of the port", fix)
        elif not interfaces[name]["up"]:
            fix = f"`sudo ip link set {name} up` and run again (discovery changes nothing)"
            yield Problem(where, f"{name} is down, so its cable cannot be detected", "up", fix)
    carrier = {name: interfaces[name]["carrier"] for name in names if name in interfaces and interfaces[name]["up"]}
    silent = [name for name in carrier if not carrier[name]]
    if silent and any(carrier.values()):
        found = f"{silent[0]} has no carrier, but the port's other PCIe function has"
        yield Problem(where, found, "carrier on both functions", "reseat the cable, check the driver")


def _silent_ports(machine: Machine, segments: Sequence[Segment]) -> Iterator[Problem]:
    """Yield the ports with a connected cable on which no machine sees another."""
    observed = machine["observed"]
    seen = {port for segment in segments for port in segment.ports}
    for number, twins in SPARK_PORTS.items():
        linked = [twin.interface for twin in twins if twin.interface in observed["neighbors"]]
        if linked and Port(machine["name"], number) not in seen:
            reason = next((observed["unheard"][name] for name in linked if name in observed["unheard"]), "")
            yield Problem(
                str(Port(machine["name"], number)),
                f"a cable is connected ({', '.join(linked)} with carrier), but {reason or 'no machine answers'}",
                "the machine at the other end",
                "`ping` the other end's address from there once, and run again"
                if reason
                else "check that it is on, that its interface is up, and that it does not filter IPv6",
            )
