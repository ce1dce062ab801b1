# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's state before its firewall changes: SSH servers, other firewalls, interfaces, this run's connection."""

from __future__ import annotations

import fnmatch
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.firewall.plan import FAMILIES, TABLE, Access, span
from ansible_collections.gb10.cluster.plugins.module_utils.firewall.published import Span

#: Properties of socket units that ssh_ports reads from ``systemctl show``.
SOCKET_PROPERTIES = ("Id", "Triggers", "Listen", "ActiveState", "UnitFileState")
_SSH_UNIT = re.compile(r"sshd?(@.*)?\.(service|socket)")
_SSH_SERVERS = frozenset({"sshd", "dropbear"})
_ENDPOINT = re.compile(r"(?:\[([0-9a-f:.]+)(?:%[^\]]*)?\]|([\d.]+)):(\d+)(?: \(Stream\))?")
#: Expressions without a match: a rule that has only these applies to every packet.
_NO_MATCH = frozenset({"counter", "log", "limit", "drop", "reject", "comment"})
#: Names of a packet's family in a rule, mapped to nft's families.
_OF_FAMILY = {"nfproto": {"ipv4": "ip", "ipv6": "ip6"}, "protocol": {"ip": "ip", "ip6": "ip6"}}

#: Family, table, name.
_Chain = tuple[str, str, str]
_Rules = Mapping[_Chain, Sequence[Sequence[Mapping[str, Any]]]]


@dataclass(frozen=True)
class Link:
    """A network device. ``ports`` are the hardware devices that it is or is based on, such as a bridge's members."""

    name: str
    ports: tuple[str, ...] = ()
    default_route: bool = False


def ssh_ports(listeners: Iterable[Mapping[str, Any]], sockets: str, config: str) -> list[int]:
    """Return the ports of SSH servers, now and after the next boot, without ports that a login forwards (ssh -R).

    ``listeners`` are node_info's. ``sockets`` is the output of ``systemctl show`` for SOCKET_PROPERTIES: with
    ssh.socket, systemd itself holds the port, and no sshd runs before the first connection. ``config`` is the output of
    ``sshd -T``, used if there is no socket unit.
    """
    found = {
        entry["port"]
        for entry in _reachable(listeners)
        # A login's processes are in a scope, so they have no unit here. A process chooses its name, and any user has
        # services in user@.service.
        if _SSH_UNIT.fullmatch(entry["unit"])
        or (entry["process"] in _SSH_SERVERS and entry["unit"] and not entry["unit"].startswith("user@"))
    }
    of_sockets = {port for block in sockets.split("\n\n") for port in _socket_ports(block)}
    of_config = {port for port in map(_port, re.findall(r"^listenaddress (\S+)$", config, re.MULTILINE)) if port}
    return sorted(found | (of_sockets or of_config))


def _socket_ports(block: str) -> set[int]:
    """Return an active or enabled SSH socket unit's ports. Source: systemd.socket(5), org.freedesktop.systemd1(5)."""
    values: dict[str, list[str]] = {}
    for line in block.splitlines():
        name, _equals, value = line.partition("=")
        values.setdefault(name, []).append(value)
    names = " ".join((*values.get("Id", []), *values.get("Triggers", []))).split()
    used = "active" in values.get("ActiveState", []) or "enabled" in values.get("UnitFileState", [])
    if not used or not any(_SSH_UNIT.fullmatch(name) for name in names):
        return set()
    return {port for port in map(_port, values.get("Listen", [])) if port}


def _port(endpoint: str) -> int:
    """Return an endpoint's port if other hosts reach it, such as "[::]:22 (Stream)", else 0, such as for a path."""
    match = _ENDPOINT.fullmatch(endpoint)
    return int(match[3]) if match and not _loopback(match[1] or match[2]) else 0


def closed(
    listeners: Iterable[Mapping[str, Any]], access: Access, ssh: Iterable[int], forwarded: Iterable[Span] = ()
) -> list[str]:
    """Return listeners that only peers reach, such as "3389/tcp (gnome-remote-de)", without the cluster's own.

    ``forwarded``: the ports of containers, from published.ports(). Docker has a listener for each.
    """
    spans = [span(text) for text in access.open_ports if text.endswith("/tcp")]
    spans += [(first, last) for first, last, protocol in forwarded if protocol == "tcp"]
    found = {
        entry["port"]: entry["process"] or "unknown"
        for entry in _reachable(listeners)
        if entry["port"] not in {*ssh, access.api_port}
        and not any(first <= entry["port"] <= last for first, last in spans)
        and not entry["unit"].startswith("gb10-")
    }
    return [f"{port}/tcp ({process})" for port, process in sorted(found.items())]


def _reachable(listeners: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [entry for entry in listeners if not _loopback(entry["address"])]


def _loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def default_devices(*routes: str) -> set[str]:
    """Return the devices of default routes, from the output of ``ip -json route show default`` for each family."""
    found = [route for text in routes for route in json.loads(text or "[]")]
    hops = [*found, *(hop for route in found for hop in route.get("nexthops", []))]
    return {hop["dev"] for hop in hops if "dev" in hop}


def source(client: str) -> list[str]:
    """Return an SSH client's address for ``ip route get``, [] if there is none (Ansible runs on the node)."""
    address, _percent, zone = client.partition("%")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return []
    return [address, "dev", zone] if zone else [address]


def entrance(route: str) -> str:
    """Return a route's device, "" if the client is this node. ``route`` is the output of ``ip -json route get``."""
    found = json.loads(route)[0]
    return "" if found.get("type") == "local" or found["dev"] == "lo" else str(found["dev"])


def matches(access: Access, links: Iterable[Link]) -> dict[str, list[str]]:
    """Return the devices that each entry of peer_firewall_trusted_interfaces matches now, without empty entries."""
    names = sorted(link.name for link in links)
    found = {pattern: fnmatch.filter(names, pattern) for pattern in access.interfaces}
    return {pattern: names for pattern, names in found.items() if names}


def problems(access: Access, links: Sequence[Link], ssh: Sequence[int], came_by: str) -> list[Problem]:
    """Return the reasons not to close the node in its current state. ``came_by`` is this run's incoming device.

    Patterns are for the node's own containers and virtual machines. A network with other hosts must be listed by its
    full name.
    """
    peers = {interface for interface, _address in access.peers}
    found = []
    for index, pattern in enumerate(access.interfaces):
        for link in (link for link in links if pattern.endswith("*") and fnmatch.fnmatch(link.name, pattern)):
            reasons = [
                *(["carries the default route"] if link.default_route else []),
                *([f"uses the port {', '.join(link.ports)}"] if link.ports else []),
                *(["is a network of the cluster"] if link.name in peers else []),
                *(["is the network of this run's connection"] if link.name == came_by else []),
            ]
            if reasons:
                expected = (
                    "interfaces of the node's own containers and virtual machines, because they can reach every port"
                )
                fix = f"list exact names, including {link.name} only if all hosts on its network may reach every port"
                text = f"{pattern!r} matches {link.name}, which {' and '.join(reasons)}"
                found.append(Problem(f"peer_firewall_trusted_interfaces[{index}]", text, expected, fix))
    if not ssh:
        text = "this node has no SSH server: no sshd listens, no socket unit starts one, and sshd -T lists no address"
        fix = "start ssh.service or ssh.socket, or set peer_firewall_enabled: false for this node"
        found.append(Problem("peer_firewall_enabled", text, "an SSH port, which stays open to all hosts", fix))
    return found


def unverified(client: str) -> Problem:
    """Return the problem that no SSH connection can verify access under new rules."""
    origin = f"from itself ({client})" if client else "without SSH, as with ansible_connection: local"
    text = f"this run connects to the node {origin}"
    fix = (
        "run the playbook from a machine that is not in this inventory; or, in a cluster of several nodes, set "
        "ansible_connection: local for this node, and another node verifies access; or set peer_firewall_enabled: false"
    )
    return Problem("ansible_connection", text, "SSH from another host, which verifies access under the new rules", fix)


def active_firewalls(ruleset_json: str, legacy: Mapping[str, str], active: Sequence[str]) -> dict[str, str]:
    """Return the other firewall that controls incoming traffic, by nft's name of the family, "" without one.

    ``ruleset_json`` is the output of ``nft -j list ruleset``, ``legacy`` that of iptables-legacy -S and
    ip6tables-legacy -S, by family. ``active`` lists ufw and firewalld if they are active; they control both
    families. A table that only blocks some hosts, such as fail2ban's, does not count. A table that refuses all other
    traffic counts.
    """
    objects = json.loads(ruleset_json or '{"nftables": []}')["nftables"]
    chains = [entry["chain"] for entry in objects if "chain" in entry]
    rules: dict[_Chain, list[Sequence[Mapping[str, Any]]]] = {}
    for entry in objects:
        if rule := entry.get("rule"):
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule["expr"])
    found = {}
    for family in FAMILIES:
        refusing = [chain for chain in chains if _decides(chain, rules, family)]
        tables = [f"the nftables table {chain['family']} {chain['table']}" for chain in refusing]
        in_legacy = re.search(r"^-P INPUT DROP|^-A INPUT -j (DROP|REJECT)", legacy.get(family, ""), re.MULTILINE)
        found[family] = [*active, *tables, *(["iptables (legacy)"] if in_legacy else []), ""][0]
    return found


def _decides(chain: Mapping[str, Any], rules: _Rules, family: str) -> bool:
    """Whether a chain refuses all incoming traffic of a family that it did not accept."""
    table = (chain["family"], chain["table"])
    if chain.get("hook") != "input" or " ".join(table) == TABLE or chain["family"] not in (family, "inet"):
        return False
    key = (*table, chain["name"])
    for expressions in rules.get(key, []):
        # For another family it has no expressions, and so no accept.
        mine = _of_family(expressions, family) or []
        if len(mine) < len(expressions) and {"accept"} <= _kinds(mine) <= _NO_MATCH | {"accept"}:
            return False
    return chain.get("policy") == "drop" or _refuses(rules, key, family, set())


def _refuses(rules: _Rules, chain: _Chain, family: str, seen: set[_Chain]) -> bool:
    """Whether a chain, or a chain that it always jumps to, refuses a family's remaining traffic."""
    if chain in seen:
        return False
    seen.add(chain)
    for expressions in rules.get(chain, []):
        mine = _of_family(expressions, family) or []
        kinds = _kinds(mine)
        if kinds <= _NO_MATCH and kinds & {"drop", "reject"}:
            return True
        target = next((e[kind]["target"] for e in mine for kind in ("jump", "goto") if kind in e), None)
        if target and kinds <= _NO_MATCH | {"jump", "goto"} and _refuses(rules, (*chain[:2], target), family, seen):
            return True
    return False


def _kinds(expressions: Iterable[Mapping[str, Any]]) -> set[str]:
    return {kind for expression in expressions for kind in expression}


def _of_family(expressions: Sequence[Mapping[str, Any]], family: str) -> list[Mapping[str, Any]] | None:
    """Return a rule's expressions without a match of the family itself, None if the rule is for another family."""
    rest = []
    for expression in expressions:
        match = expression.get("match", {})
        left = match.get("left")
        names = (
            _OF_FAMILY.get(left.get("meta", {}).get("key", ""))
            if isinstance(left, dict) and match.get("op") == "=="
            else None
        )
        named = names.get(str(match["right"])) if names else None
        if named is None:
            rest.append(expression)
        elif named != family:
            return None
    return rest
