# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List the neighbors on a node's QSFP cables. Sends pings and reads tables; changes no setting."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, RunAll
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import parse as text

#: IPv6 all-nodes multicast: every node on the link replies.
_ALL_NODES = "ff02::1"
#: ping exits with 1 if no machine replies.
_PING_WORKS = (0, 1)


def read(run_all: RunAll, interfaces: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return {neighbors: {interface: [...]}, unheard: {interface: reason}, notes: [str], management: str}.

    ``interfaces`` is the result of io_node.interfaces. All are queried in parallel. Raises ValueError if `ip` fails
    or `ping` is not installed.
    """
    linked = [name for name in text.PORT_OF if name in interfaces and interfaces[name]["up"] and interfaces[name]["carrier"]]
    own = _link_locals()
    routes, announced, browsed, *pings = run_all(
        [
            ["ip", "-4", "-json", "route", "show", "default"],
            ["lldpctl", "-f", "json0"],
            ["avahi-browse", "-p", "-r", "-t", "_ssh._tcp"],
            # Two packets a second apart: each neighbor has a second to answer the first.
            *(["ping", "-6", "-n", "-c", "2", "-w", "2", f"{_ALL_NODES}%{name}"] for name in linked if name in own),
        ]
    )
    notes = [_reason(tool, answer) for tool, answer in (("lldpctl", announced), ("avahi-browse", browsed)) if answer[0] not in (0, NOT_INSTALLED)]
    lldp: dict[str, list[dict[str, str]]] = {}
    try:
        lldp = text.lldp(announced[1]) if announced[0] == 0 else {}
    except ValueError as error:  # most of the text comes from a neighbor
        notes.append(f"lldpctl output cannot be parsed: {error}")
    mdns = text.mdns(browsed[1]) if browsed[0] == 0 else {}
    answered: dict[str, list[tuple[str, str]]] = {name: [] for name in linked}
    silent = "it has no IPv6 link-local address, and no IPv4 neighbor answers"
    unheard = dict.fromkeys([name for name in linked if name not in own], silent)
    for name, ping in zip([name for name in linked if name in own], pings, strict=True):
        answered[name] = [(address, "ndp") for address in text.answering(ping[1]) if address not in own[name] and text.is_of_the_link(address)]
        if _installed(ping)[0] not in _PING_WORKS:
            unheard[name] = _reason("ping", ping)
    for name, address in _ipv4(run_all, {name: interfaces[name]["addresses"] for name in linked}, mdns):
        answered[name].append((address, "arp"))
    tables = run_all([["ip", "-json", "neigh", "show", "dev", name] for name in linked])
    neighbors: dict[str, list[dict[str, str]]] = {}
    for name, table in zip(linked, tables, strict=True):
        macs = text.macs(_must(table))
        found = [(address, macs[address], source) for address, source in answered[name] if address in macs]
        neighbors[name] = text.merge(name, found, lldp.get(name, []), mdns.get(name, {}))
    _add_host_keys(run_all, [entry for entries in neighbors.values() for entry in entries])
    return {
        "neighbors": neighbors,
        "unheard": {name: reason for name, reason in unheard.items() if not neighbors[name]},
        "notes": notes,
        "management": text.management(_must(routes), os.environ.get("SSH_CONNECTION", ""), interfaces),
    }


def _link_locals() -> dict[str, set[str]]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            return text.link_locals(file.read())
    except FileNotFoundError:  # a kernel without IPv6
        return {}


def _ipv4(run_all: RunAll, addresses: Mapping[str, list[str]], mdns: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return (interface, IPv4 address) of each ARP or mDNS neighbor that replies to a ping.

    This covers interfaces without IPv6, as this collection configures them. An ARP entry alone is no evidence: it may
    be days old.
    """
    names = [name for name, own in addresses.items() if own]
    tables = run_all([["ip", "-4", "-json", "neigh", "show", "dev", name] for name in names])
    candidates = []
    for name, table in zip(names, tables, strict=True):
        subnets = [ipaddress.ip_interface(address) for address in addresses[name]]
        for address in dict.fromkeys([*text.macs(_must(table)), *mdns.get(name, {})]):
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
        entry["host_key"] = text.host_key(scan[1])


def _installed(answer: tuple[int, str, str]) -> tuple[int, str, str]:
    if answer[0] == NOT_INSTALLED:
        raise ValueError(answer[2])
    return answer


def _must(answer: tuple[int, str, str]) -> str:
    if answer[0] != 0:
        raise ValueError(_reason("ip", answer))
    return answer[1]


def _reason(tool: str, answer: tuple[int, str, str]) -> str:
    status, stdout, stderr = answer
    return f"{tool} exited with status {status}: {' '.join((stderr or stdout).split())}"
