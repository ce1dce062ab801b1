# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ping, ip, lldpctl, avahi-browse and ssh-keyscan print about the machines on a cable, turned into plain data."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.topology import SPARK_PORTS

#: QSFP interface -> its port.
PORT_OF: Mapping[str, int] = {twin.interface: port for port, twins in SPARK_PORTS.items() for twin in twins}
#: The other interfaces of a Spark: the RJ45 socket and Wi-Fi.
MANAGEMENT = ("enP7s7", "wlP9s9")
_LINK_SCOPE = 0x20
#: Flags of an address that cannot be used: not checked for duplicates yet, or found to be one.
_TENTATIVE, _DUPLICATE = 0x40, 0x08


def link_locals(text: str) -> dict[str, set[str]]:
    """Return interface -> its usable IPv6 link-local addresses, from /proc/net/if_inet6."""
    result: dict[str, set[str]] = {}
    for line in text.splitlines():
        address, _index, _prefix, scope, flags, name = line.split()
        if int(scope, 16) == _LINK_SCOPE and not int(flags, 16) & (_TENTATIVE | _DUPLICATE):
            result.setdefault(name, set()).add(str(ipaddress.IPv6Address(int(address, 16))))
    return result


def answering(text: str) -> list[str]:
    """Return the addresses, without zone, that answered a ping."""
    found = re.findall(r"bytes from ([0-9a-fA-F:.]+)(?:%\S+)?: icmp_seq", text)
    return list(dict.fromkeys(str(ipaddress.ip_address(address)) for address in found))


def macs(text: str) -> dict[str, str]:
    """Return address -> MAC address, from `ip -json neigh show`; entries without a MAC address are left out."""
    return {entry["dst"]: entry["lladdr"].lower() for entry in json.loads(text or "[]") if "lladdr" in entry}


def lldp(text: str) -> dict[str, list[dict[str, str]]]:
    """Return interface -> [{mac, name, management}] of the Sparks in `lldpctl -f json0`.

    A switch is left out: a Spark is told by the name of its port, which lldpd sends as description or as identifier.
    """
    result: dict[str, list[dict[str, str]]] = {}
    for group in json.loads(text or "{}").get("lldp", []):
        for entry in group.get("interface", []):
            port = _first(entry.get("port"))
            identifier = _first(port.get("id"))
            if not {_value(port, "descr"), _value(port, "id")} & PORT_OF.keys():
                continue
            chassis = _first(entry.get("chassis"))
            addresses = [item["value"] for item in chassis.get("mgmt-ip", []) if ":" not in item["value"]]
            result.setdefault(entry["name"], []).append(
                {
                    "mac": identifier["value"].lower() if identifier.get("type") == "mac" else "",
                    "name": _value(chassis, "name"),
                    "management": addresses[0] if addresses else "",
                }
            )
    return result


def _first(items: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    return items[0] if items else {}


def _value(mapping: Mapping[str, Any], name: str) -> str:
    return str(_first(mapping.get(name)).get("value", ""))


def mdns(text: str) -> dict[str, dict[str, str]]:
    """Return interface -> {address: host name}, from `avahi-browse -p -r -t _ssh._tcp`."""
    result: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        fields = line.split(";")
        if fields[0] == "=" and len(fields) > 7:
            result.setdefault(fields[1], {})[fields[7]] = fields[6].removesuffix(".local")
    return result


def host_key(text: str) -> str:
    """Return the key in the output of `ssh-keyscan -t ed25519`, as known_hosts has it behind the name, or ""."""
    found = re.search(r"^[^#\s]\S* (ssh-ed25519 [A-Za-z0-9+/=]+)$", text, re.MULTILINE)
    return found[1] if found else ""


def management(default_routes: str, ssh_connection: str, interfaces: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the IPv4 address that a node is managed by, or "": nothing is guessed beyond a Spark's own interface names.

    It is the address of the default route's interface, else the one that SSH came in by, else that of RJ45 or Wi-Fi; never one
    of the fabric. `default_routes` is `ip -4 -json route show default`, `ssh_connection` the variable SSH_CONNECTION.
    """
    addresses = {
        name: [address.partition("/")[0] for address in facts["addresses"]] for name, facts in interfaces.items() if name not in PORT_OF
    }
    routes = sorted(json.loads(default_routes or "[]"), key=lambda route: route.get("metric", 0))
    connected = [address for address in ssh_connection.split()[2:3] if any(address in own for own in addresses.values())]
    candidates = [address for route in routes for address in addresses.get(route.get("dev", ""), [])]
    candidates += connected + [address for name in MANAGEMENT for address in addresses.get(name, [])]
    return candidates[0] if candidates else ""


def merge(
    interface: str,
    addresses: Iterable[tuple[str, str, str]],
    announced: Sequence[Mapping[str, str]],
    names: Mapping[str, str],
) -> list[dict[str, str]]:
    """Put together what is known of the neighbours on one interface, a mapping for each MAC address.

    ``addresses`` are (address, MAC address, "ndp" or "arp") of machines that answered just now, ``announced`` comes from lldp() and
    ``names`` from mdns(). Returns [{mac, address, source, name, management}]; ``address`` is how to reach it from this node, with zone.
    """
    result: dict[str, dict[str, str]] = {}
    for address, mac, source in addresses:
        where = f"{address}%{interface}" if ":" in address else address
        found = result.setdefault(mac, {"mac": mac, "address": where, "source": source, "name": "", "management": ""})
        found["name"] = found["name"] or names.get(address, "")
    for entry in announced:
        if entry["mac"]:
            found = result.setdefault(entry["mac"], {"mac": entry["mac"], "address": "", "source": "lldp", "name": "", "management": ""})
            found.update(name=entry["name"] or found["name"], management=entry["management"])
    return list(result.values())
