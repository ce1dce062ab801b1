# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what each machine sees on its QSFP ports to the cables, the topology and what is wrong with them.

A machine comes in as a mapping::

    {"name": str,            # as Ansible knows it in this run
     "unreachable": str,     # why it could not be asked, or ""
     "observed": {...},      # what discovery_answer.py took of its answer, or {} if it could not be asked or answered nonsense
     "invalid": [{...}],     # the problems of an answer that cannot be used, as Problem has them; may be left out if there are none
     "address": str,         # how it is reached; on a cable with the zone of the machine that sees it
     "login": {"user": str, "key": str, "arguments": str, "port": int, "local": bool},  # arguments for ssh; local: this very machine
     # and of a machine that was not given but found on a cable:
     "via": str, "port": int,        # the machine and the port that it was seen from
     "macs": [str], "host_key": str, # as seen from there
     "label": str,                   # the name that it announces, or ""
     "direct": str}                  # why its management address cannot be reached from here, or ""

What is seen may be a twin, on a direct cable too, for both twins of a port share the cable; so machines are counted, not MAC addresses.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.answer import MACHINES
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.cabling import Port, Proposal, Segment, propose
from ansible_collections.gb10.cluster.plugins.module_utils.discovery.parse import PORT_OF
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

Machine = Mapping[str, Any]
#: Names that mean something else to Ansible or to the playbooks.
_RESERVED = frozenset({"all", "ungrouped", "localhost", "gb10_cluster", "head", "worker"})


@dataclass(frozen=True)
class Discovery:
    """``problems`` keep the inventory from being written, ``notes`` do not."""

    proposal: Proposal = field(default_factory=Proposal)
    segments: tuple[Segment, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()


def strangers(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return the machines that are seen on cables and were neither asked nor tried, one mapping each as above, not asked yet.

    None where they would be more than MACHINES in all: a machine may name others without end.
    """
    found = _unasked(machines)
    return found if len(machines) + len(found) <= MACHINES else []


def _unasked(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    known = _owners(machines).keys() | {mac for machine in machines if not machine["observed"] for mac in machine.get("macs", [])}
    identities = _identities(machines)
    found: dict[str, dict[str, Any]] = {}
    for machine, port, neighbour in _sightings(machines):
        if neighbour["mac"] in known:
            continue
        stranger = found.setdefault(
            identities[neighbour["mac"]],
            {
                "name": f"found-{neighbour['mac'].replace(':', '')}",
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
        stranger["macs"] += [neighbour["mac"]] if neighbour["mac"] not in stranger["macs"] else []
        stranger["label"] = stranger["label"] or neighbour["name"]
        if neighbour["host_key"] and not stranger["host_key"]:
            stranger.update(via=machine["name"], port=port, address=neighbour["address"], host_key=neighbour["host_key"])
    return list(found.values())


def settled(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return the machines under the names that they are to have in the inventory.

    That is what the user called it, unless that was an address; else its host name, with a number where that is taken. The given ones
    stay in their order, the others follow by name.
    """
    names = {machine["name"]: machine["name"] for machine in machines if not machine["observed"] or not _is_nameless(machine)}
    for machine in machines:
        if machine["name"] not in names:
            hostname = machine["observed"]["hostname"].lower()
            base = "spark" if hostname in _RESERVED else hostname
            free = (name for name in (base, *(f"{base}-{number}" for number in range(2, len(machines) + 2))) if name not in names.values())
            names[machine["name"]] = next(free)
    renamed = [{**machine, "name": names[machine["name"]], **({"via": names[machine["via"]]} if "via" in machine else {})} for machine in machines]
    # In the order of the cables they came by chance; spark2 is to come before spark10.
    return sorted(renamed, key=lambda machine: (1, len(machine["name"]), machine["name"]) if "via" in machine else (0, 0, ""))


def _is_nameless(machine: Machine) -> bool:
    try:
        ipaddress.ip_address(machine["name"])
    except ValueError:
        return "via" in machine or machine["name"] in _RESERVED
    return True


def discover(machines: Sequence[Machine], partial: bool = False) -> Discovery:
    """Find the cables and propose a topology for the Sparks that answered. ``machines`` are the given ones first, head first.

    With ``partial``, a machine that could not be asked is only a note.
    """
    # Who has no QSFP port and was not given is no Spark: a server on the same switch that lets us in, for example.
    members = [
        machine
        for machine in machines
        if machine["observed"] and ("via" not in machine or PORT_OF.keys() & machine["observed"]["interfaces"].keys())
    ]
    names = [machine["name"] for machine in members]
    problems, notes = [*_twice(machines), *_not_direct(members)], [note for machine in members for note in _port_notes(machine)]
    segments = _segments(machines, names)
    # A Spark that sees nobody is alone only if nothing is plugged in.
    alone = len(names) == 1 and not partial
    (problems if alone else notes).extend(problem for machine in members for problem in _silent_ports(machine, segments))
    for machine in machines:
        if machine["unreachable"]:
            # Who shows no SSH on a switch may be the switch itself. On a cable it is the machine at its end.
            unimportant = members and (partial or _may_be_the_switch(machine, segments))
            (notes if unimportant else problems).append(_not_asked(machine, machines))
        (notes if members and partial else problems).extend(Problem(**problem) for problem in machine.get("invalid", ()))
    if len(machines) + len(unasked := _unasked(machines)) > MACHINES:
        problems.append(_too_many(len(machines) + len(unasked), unasked))
    # What is counted twice would only confuse.
    if not members or any(_twice(machines)):
        return Discovery(problems=tuple(problems), notes=tuple(notes))
    proposal = propose(names, segments)
    return Discovery(proposal, tuple(segments), (*problems, *proposal.problems), (*proposal.notes, *notes))


def _sightings(machines: Sequence[Machine]) -> Iterator[tuple[Machine, int, Mapping[str, str]]]:
    for machine in machines:
        for interface, neighbours in machine["observed"].get("neighbours", {}).items():
            for neighbour in neighbours:
                yield machine, PORT_OF[interface], neighbour


def _owners(machines: Sequence[Machine]) -> dict[str, tuple[str, int | None]]:
    """Return MAC address -> (machine, QSFP port or None) of every machine that was asked; a bridge may share the MAC address of a port."""
    owners: dict[str, tuple[str, int | None]] = {}
    for machine in machines:
        for interface, facts in machine["observed"].get("interfaces", {}).items():
            if facts["mac"] and (interface in PORT_OF or facts["mac"] not in owners):
                owners[facts["mac"]] = (machine["name"], PORT_OF.get(interface))
    return owners


def _identities(machines: Sequence[Machine]) -> dict[str, str]:
    """Return MAC address -> what tells its machine from others: the host key, where one was read, for the twins share it."""
    identities: dict[str, str] = {}
    for _machine, _port, neighbour in _sightings(machines):
        identities[neighbour["mac"]] = neighbour["host_key"] or identities.get(neighbour["mac"], neighbour["mac"])
    return identities


def _segments(machines: Sequence[Machine], names: Sequence[str]) -> list[Segment]:
    owners, identities = _owners(machines), _identities(machines)
    groups: list[set[Port | str]] = []
    for machine, number, neighbour in _sightings(machines):
        if machine["name"] not in names:
            continue
        owner, other = owners.get(neighbour["mac"], ("", None))
        seen = Port(owner, other) if owner in names and other is not None else neighbour["mac"]
        ends = {Port(machine["name"], number), seen}
        touching = [group for group in groups if group & ends]
        groups = [group for group in groups if not group & ends] + [ends.union(*touching)]
    segments = [
        Segment(
            tuple(sorted((end for end in group if isinstance(end, Port)), key=lambda port: (names.index(port.machine), port.number))),
            frozenset(identities[end] for end in group if isinstance(end, str)),
        )
        for group in groups
    ]
    # A port that sees only its own twin sees nobody.
    return sorted(
        (segment for segment in segments if len(segment.ports) + len(segment.strangers) > 1),
        key=lambda segment: (names.index(segment.ports[0].machine), segment.ports[0].number),
    )


def _twice(machines: Sequence[Machine]) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for machine in machines:
        facts = machine["observed"].get("interfaces", {})
        own = {facts[name]["mac"] for name in PORT_OF if name in facts and facts[name]["mac"]}
        same = {owners[mac] for mac in own if mac in owners}
        for other in sorted(same):
            yield Problem(machine["name"], f"it is the same machine as {other}", "each machine once", "give one of its addresses")
        owners |= dict.fromkeys(own, machine["name"])


def _too_many(count: int, unasked: Sequence[Machine]) -> Problem:
    seers = sorted({str(Port(machine["via"], machine["port"])) for machine in unasked})
    fix = f"look at who is behind {', '.join(seers[:5])}, and take them off that network"
    return Problem("cables", f"{count} machines are seen", f"{MACHINES} at most, of which the rest is not asked", fix)


def _may_be_the_switch(machine: Machine, segments: Sequence[Segment]) -> bool:
    if "via" not in machine or machine["host_key"]:
        return False
    seen = Port(machine["via"], machine["port"])
    return any(seen in segment.ports and not segment.is_cable for segment in segments)


def _not_asked(machine: Machine, machines: Sequence[Machine]) -> Problem:
    reason = machine["unreachable"].removeprefix("Task failed: ").rstrip(".")
    if "via" not in machine:
        return Problem(machine["name"], reason, "a login from here", "correct the address, the user or the key (-u, --private-key)")
    label = f" ({machine['label']})" if machine["label"] else ""
    where = str(Port(machine["via"], machine["port"]))
    found = f"a machine is seen there{label}, {', '.join(machine['macs'])}, but it cannot be asked: {reason}"
    without = "-e discover_partial=true writes the inventory without it"
    if not machine["host_key"]:
        return Problem(where, found, "sshd on every Spark; a switch may have none", f"start it there, if it is a Spark; or {without}")
    expected = "a login with the same user and key as for the machine that sees it"
    return Problem(where, found, expected, f"try `{try_command(machine, machines)}` and put your public key there; or {without}")


def try_command(machine: Machine, machines: Sequence[Machine]) -> str:
    """Return the ssh command by which a person logs in to a machine that was found on a cable."""
    named = {other["name"]: other for other in machines}
    hops: list[str] = []
    hop = named[machine["via"]]
    while not hop["login"]["local"]:
        # ssh hands the last hop to another ssh in a ProxyCommand, where %% stands for %, that one the hop before it, and so on.
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
                "an address by which this machine reaches it without the cable, for the cable gets new addresses",
                "connect its RJ45 socket or Wi-Fi to your network, and run again",
            )


def _port_notes(machine: Machine) -> Iterator[Problem]:
    """What stands out on a machine's ports. It does not keep the inventory from being written."""
    interfaces = machine["observed"]["interfaces"]
    for note in machine["observed"]["notes"]:
        yield Problem(machine["name"], note, "what LLDP and mDNS know, a supplement", "-e discover_become=true where it is a matter of rights")
    if not PORT_OF.keys() & interfaces.keys():
        yield Problem(machine["name"], "it has none of the QSFP interfaces of a Spark", ", ".join(PORT_OF), "check that this is a Spark")
        return
    for number, twins in SPARK_PORTS.items():
        names = [twin.interface for twin in twins]
        where = str(Port(machine["name"], number))
        for name in names:
            if name not in interfaces:
                yield Problem(where, f"{name} does not exist", "both twins of the port", "check the driver, with lspci and ibdev2netdev")
            elif not interfaces[name]["up"]:
                fix = f"`sudo ip link set {name} up` and run again (discovery changes nothing)"
                yield Problem(where, f"{name} is down, so its cable cannot be seen", "up", fix)
        up = [name for name in names if name in interfaces and interfaces[name]["up"]]
        linked = [name for name in up if interfaces[name]["carrier"]]
        if linked and len(linked) < len(up):
            silent = next((name for name in up if name not in linked), "")
            yield Problem(where, f"{silent} has no carrier although its twin has", "carrier on both twins", "reseat the cable, check the driver")


def _silent_ports(machine: Machine, segments: Sequence[Segment]) -> Iterator[Problem]:
    """Ports with a cable at whose other end nobody is seen, and that nobody else sees."""
    observed = machine["observed"]
    seen = {port for segment in segments for port in segment.ports}
    for number, twins in SPARK_PORTS.items():
        linked = [twin.interface for twin in twins if twin.interface in observed["neighbours"]]
        if linked and Port(machine["name"], number) not in seen:
            reason = next((observed["unheard"][name] for name in linked if name in observed["unheard"]), "")
            yield Problem(
                str(Port(machine["name"], number)),
                f"a cable is plugged in ({', '.join(linked)} with carrier), but {reason or 'nobody answers'}",
                "the machine at the other end",
                "`ping` the other end's address there once, and run again" if reason else "is it on, its interface up, and IPv6 not filtered there?",
            )
