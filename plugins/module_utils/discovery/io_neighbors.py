# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List the neighbors on a node's QSFP cables. Sends pings and reads tables; changes no setting."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import host_key
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, RunAll
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import parse as discovery_parse

#: IPv6 all-nodes multicast: every node on the link replies.
_ALL_NODES = "ff02::1"
#: ping exits with 1 if no machine replies.
_PING_WORKS = (0, 1)
#: Exit status, standard output and standard error of a command.
Answer = tuple[int, str, str]
#: The interface and the address of a neighbor.
Address = tuple[str, str]


def read(run_all: RunAll, interfaces: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return {neighbors: {interface: [...]}, unheard: {interface: reason}, notes: [str], management: str}.

    ``interfaces`` is the result of io_node.interfaces. All are queried in parallel. Raises ValueError if `ip` fails
    or `ping` is not installed.
    """
    linked = [name for name in discovery_parse.PORT_OF if name in interfaces and _is_linked(interfaces[name])]
    own = {name: addresses for name, addresses in _link_locals().items() if name in linked}
    routes, announced, browsed, *pings = run_all(
        [
            ["ip", "-4", "-json", "route", "show", "default"],
            ["lldpctl", "-f", "json0"],
            ["avahi-browse", "-p", "-r", "-t", "_ssh._tcp"],
            # Two packets a second apart: each neighbor has a second to answer the first.
            *(["ping", "-6", "-n", "-c", "2", "-w", "2", f"{_ALL_NODES}%{name}"] for name in own),
        ]
    )
    pinged = dict(zip(own, map(_installed, pings), strict=True))
    lldp, notes = _lldp(announced)
    mdns = discovery_parse.mdns(browsed[1]) if browsed[0] == 0 else {}
    found = [(name, address) for name, ping in pinged.items() for address in _ndp(ping, own[name])]
    found += _ipv4(run_all, {name: interfaces[name]["addresses"] for name in linked}, mdns)
    neighbors = _neighbors(run_all, linked, found, lldp, mdns)
    return {
        "neighbors": neighbors,
        "unheard": {name: reason for name in linked if not neighbors[name] and (reason := _unheard(pinged.get(name)))},
        "notes": [*notes, *_optional("avahi-browse", browsed)],
        "management": discovery_parse.management(_must(routes), os.environ.get("SSH_CONNECTION", ""), interfaces),
    }


def _is_linked(facts: Mapping[str, Any]) -> bool:
    return bool(facts["up"] and facts["carrier"])


def _lldp(answer: Answer) -> tuple[dict[str, list[dict[str, str]]], list[str]]:
    """Return the neighbors that lldpctl prints, and notes about errors."""
    try:
        return discovery_parse.lldp(answer[1]) if answer[0] == 0 else {}, _optional("lldpctl", answer)
    except ValueError as error:  # most of the text comes from a neighbor
        return {}, [f"lldpctl output cannot be parsed: {error}"]


def _ndp(ping: Answer, own: Collection[str]) -> list[str]:
    """Return the link-local addresses of the neighbors that answered a ping to all nodes."""
    return [
        address
        for address in discovery_parse.answering(ping[1])
        if address not in own and discovery_parse.is_of_the_link(address)
    ]


def _unheard(ping: Answer | None) -> str:
    """Return why an interface may have neighbors that the ping to all nodes did not find, else ""."""
    if ping is None:
        return "it has no IPv6 link-local address, and no IPv4 neighbor answers"
    return "" if ping[0] in _PING_WORKS else _reason("ping", ping)


def _neighbors(
    run_all: RunAll,
    linked: Sequence[str],
    addresses: Sequence[Address],
    lldp: Mapping[str, list[dict[str, str]]],
    mdns: Mapping[str, Mapping[str, str]],
) -> dict[str, list[dict[str, str]]]:
    """Return the neighbors of each interface with their MAC addresses and host keys."""
    tables = run_all([["ip", "-json", "neigh", "show", "dev", name] for name in linked])
    neighbors = {}
    for name, table in zip(linked, tables, strict=True):
        macs = discovery_parse.macs(_must(table))
        found = [(address, macs[address]) for where, address in addresses if where == name and address in macs]
        neighbors[name] = discovery_parse.merge(name, found, lldp.get(name, []), mdns.get(name, {}))
    _add_host_keys(run_all, [entry for entries in neighbors.values() for entry in entries])
    return neighbors


def _link_locals() -> dict[str, set[str]]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            return discovery_parse.link_locals(file.read())
    except FileNotFoundError:  # a kernel without IPv6
        return {}


def _ipv4(run_all: RunAll, addresses: Mapping[str, list[str]], mdns: Mapping[str, Mapping[str, str]]) -> list[Address]:
    """Return the IPv4 address of each ARP or mDNS neighbor that replies to a ping.

    This covers interfaces without IPv6, as this collection configures them. An ARP entry alone is not evidence: it may
    be days old.
    """
    names = [name for name, own in addresses.items() if own]
    tables = run_all([["ip", "-4", "-json", "neigh", "show", "dev", name] for name in names])
    candidates = []
    for name, table in zip(names, tables, strict=True):
        subnets = [ipaddress.ip_interface(address) for address in addresses[name]]
        for address in dict.fromkeys([*discovery_parse.macs(_must(table)), *mdns.get(name, {})]):
            ip = ipaddress.ip_address(address)
            if any(ip in subnet.network and ip != subnet.ip for subnet in subnets):
                candidates.append((name, address))
    answers = run_all([["ping", "-n", "-c", "1", "-W", "1", "-I", name, address] for name, address in candidates])
    return [candidate for candidate, answer in zip(candidates, answers, strict=True) if _installed(answer)[0] == 0]


def _add_host_keys(run_all: RunAll, neighbors: list[dict[str, str]]) -> None:
    """Add `host_key`. It also shows that two PCIe functions belong to one machine."""
    queried = [entry for entry in neighbors if entry["address"]]
    scans = run_all([["ssh-keyscan", "-T", "3", "-t", "ed25519", entry["address"]] for entry in queried])
    for entry in neighbors:
        entry["host_key"] = ""
    for entry, scan in zip(queried, scans, strict=True):
        entry["host_key"] = host_key.offered(scan[1])


def _optional(tool: str, answer: Answer) -> list[str]:
    """Return a note if an installed tool failed."""
    return [] if answer[0] in (0, NOT_INSTALLED) else [_reason(tool, answer)]


def _installed(answer: Answer) -> Answer:
    if answer[0] == NOT_INSTALLED:
        raise ValueError(answer[2])
    return answer


def _must(answer: Answer) -> str:
    if answer[0] != 0:
        raise ValueError(_reason("ip", answer))
    return answer[1]


def _reason(tool: str, answer: Answer) -> str:
    status, stdout, stderr = answer
    return f"{tool} exited with status {status}: {' '.join((stderr or stdout).split())}"
