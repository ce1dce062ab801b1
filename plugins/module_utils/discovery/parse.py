# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse the output of ping, ip, lldpctl, avahi-browse and ssh-keyscan about the machines on a cable.

Announced values that discovery/answer.py would reject are left out: a neighbor must not make this node's own answer
unusable. Each function raises only ValueError, for text that its program does not print.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.bounded_json import load, mappings
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

#: QSFP interface -> its port.
PORT_OF: Mapping[str, int] = {twin.interface: port for port, twins in SPARK_PORTS.items() for twin in twins}
#: A Spark's other interfaces: the RJ45 socket and Wi-Fi.
MANAGEMENT = ("enP7s7", "wlP9s9")
#: Pattern of an acceptable announced name.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
#: The MAC address of one machine, in lower case.
UNICAST_MAC = re.compile(r"(?!00:00:00:00:00:00)[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
#: Maximum output length in characters; lldpctl prints 4 KiB per neighbor.
_MOST = 1 << 22
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_LINK_SCOPE = 0x20
#: Flags of an unusable address: tentative (duplicate check pending) or duplicate.
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
    """Return the addresses, without zone, that replied to a ping."""
    found = re.findall(r"bytes from ([0-9a-fA-F:.]{1,45})(?:%\S+)?: icmp_seq", text)
    return list(dict.fromkeys(str(ip) for address in found if (ip := _ip(address)) is not None))


def macs(text: str) -> dict[str, str]:
    """Return address -> MAC address, from `ip -json neigh show`; entries without a MAC address are left out."""
    found = ((_ip(entry.get("dst")), _mac(entry.get("lladdr"))) for entry in mappings(load(text or "[]", _MOST)))
    return {str(ip): mac for ip, mac in found if ip is not None and mac}


def lldp(text: str) -> dict[str, list[dict[str, str]]]:
    """Return interface -> [{mac, name}] of the Sparks in `lldpctl -f json0`.

    Switches are left out. A Spark is recognized by its port name, which lldpd sends as description or as identifier.
    """
    result: dict[str, list[dict[str, str]]] = {}
    whole = load(text or "{}", _MOST)
    for entry in (
        entry
        for group in mappings(whole.get("lldp") if isinstance(whole, Mapping) else ())
        for entry in mappings(group.get("interface"))
    ):
        port = _first(entry.get("port"))
        identifier = _first(port.get("id"))
        if not {_value(port, "descr"), _value(port, "id")} & PORT_OF.keys():
            continue
        result.setdefault(str(entry.get("name")), []).append(
            {
                "mac": _mac(identifier.get("value")) if identifier.get("type") == "mac" else "",
                "name": _name(_value(_first(entry.get("chassis")), "name")),
            }
        )
    return result


def _first(items: object) -> Mapping[str, Any]:
    return next(iter(mappings(items)), {})


def _value(mapping: Mapping[str, Any], name: str) -> str:
    return str(_first(mapping.get(name)).get("value", ""))


def _ip(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address without zone, or None for any other value."""
    try:
        return ipaddress.ip_address(value) if isinstance(value, str) and "%" not in value else None
    except ValueError:
        return None


def _mac(value: object) -> str:
    """Return a MAC address in lower case, or "" for invalid or multicast ones: a neighbor may announce anything."""
    found = value.lower() if isinstance(value, str) else ""
    return found if UNICAST_MAC.fullmatch(found) else ""


def _name(value: str) -> str:
    return value if NAME.fullmatch(value) else ""


def is_unicast(ip: ipaddress.IPv4Address) -> bool:
    """Whether it can be another machine's address: neither loopback, multicast nor reserved."""
    return not (ip.is_loopback or ip.is_multicast or ip.is_reserved or ip in _THIS_NETWORK)


def is_of_the_link(address: str) -> bool:
    """Whether it is a unicast IPv6 link-local address."""
    ip = _ip(address)
    return isinstance(ip, ipaddress.IPv6Address) and ip.is_link_local


def mdns(text: str) -> dict[str, dict[str, str]]:
    """Return interface -> {address: host name}, from `avahi-browse -p -r -t _ssh._tcp`."""
    result: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        fields = line.split(";")
        if fields[0] == "=" and len(fields) > 7 and (ip := _ip(fields[7])) is not None:
            result.setdefault(fields[1], {})[str(ip)] = _name(fields[6].removesuffix(".local"))
    return result


def management(default_routes: str, ssh_connection: str, interfaces: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a node's management IPv4 address, or "". Only a Spark's own interface names are considered.

    It is the address of the default route's interface, else the SSH connection's local address, else that of RJ45 or
    Wi-Fi; never a fabric address. `default_routes` is the output of `ip -4 -json route show default`,
    `ssh_connection` the variable SSH_CONNECTION.
    """
    addresses = {
        name: [address.partition("/")[0] for address in facts["addresses"]]
        for name, facts in interfaces.items()
        if name not in PORT_OF
    }
    routes = sorted(mappings(load(default_routes or "[]", _MOST)), key=_metric)
    connected = [
        address for address in ssh_connection.split()[2:3] if any(address in own for own in addresses.values())
    ]
    candidates = [address for route in routes for address in addresses.get(str(route.get("dev")), [])]
    candidates += connected + [address for name in MANAGEMENT for address in addresses.get(name, [])]
    return candidates[0] if candidates else ""


def _metric(route: Mapping[str, Any]) -> int:
    metric = route.get("metric", 0)
    return metric if isinstance(metric, int) else 0


def merge(
    interface: str,
    addresses: Iterable[tuple[str, str]],
    announced: Sequence[Mapping[str, str]],
    names: Mapping[str, str],
) -> list[dict[str, str]]:
    """Merge the data about the neighbors on one interface, one mapping per MAC address.

    ``addresses`` are (address, MAC address) of machines that just replied, ``announced`` comes from lldp() and
    ``names`` from mdns(). Returns [{mac, address, name}]. ``address`` has a zone and is reachable from this node.
    """
    result: dict[str, dict[str, str]] = {}
    for address, mac in addresses:
        where = f"{address}%{interface}" if ":" in address else address
        found = result.setdefault(mac, {"mac": mac, "address": where, "name": ""})
        found["name"] = found["name"] or names.get(address, "")
    for entry in announced:
        if entry["mac"]:
            found = result.setdefault(entry["mac"], {"mac": entry["mac"], "address": "", "name": ""})
            found["name"] = entry["name"] or found["name"]
    return list(result.values())
