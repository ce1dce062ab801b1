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
_NO_MATCH = frozenset({"counter", "log", "limit", "drop", "reject", "comment", "family"})
#: Keys and values of a match of a packet's family, mapped to nft's families.
_NAMED = {("nfproto", "ipv4"): "ip", ("nfproto", "ipv6"): "ip6", ("protocol", "ip"): "ip", ("protocol", "ip6"): "ip6"}

#: Family, table, name.
_Chain = tuple[str, str, str]
#: The expressions of each rule, by kind.
_Rules = dict[_Chain, list[dict[str, Any]]]


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
    of_config = set(map(_port, re.findall(r"^listenaddress (\S+)$", config, re.MULTILINE))) - {0}
    return sorted(found | (of_sockets or of_config))


def _socket_ports(block: str) -> set[int]:
    """Return an active or enabled SSH socket unit's ports. Source: systemd.socket(5), org.freedesktop.systemd1(5)."""

    def of(name: str) -> list[str]:
        return re.findall(rf"^{name}=(.*)$", block, re.MULTILINE)

    used = "active" in of("ActiveState") or "enabled" in of("UnitFileState")
    names = " ".join(of("Id") + of("Triggers")).split()
    if not used or not any(map(_SSH_UNIT.fullmatch, names)):
        return set()
    return set(map(_port, of("Listen"))) - {0}


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
        if entry["port"] not in {*ssh, access.api_port, access.wake_port}
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


def devices(routes: str) -> list[str]:
    """Return the devices of routes, in order, from the output of ``ip route``."""
    return re.findall(r"\bdev (\S+)", routes)


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
    found = {}
    for family in FAMILIES:
        rules: _Rules = {}
        for rule in (entry["rule"] for entry in objects if "rule" in entry):
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(
                _of_family(rule["expr"], family)
            )
        tables = [
            f"the nftables table {chain['family']} {chain['table']}"
            for chain in chains
            if chain["family"] in (family, "inet") and _decides(chain, rules)
        ]
        in_legacy = re.search(r"^-P INPUT DROP|^-A INPUT -j (DROP|REJECT)", legacy.get(family, ""), re.MULTILINE)
        found[family] = [*active, *tables, *(["iptables (legacy)"] if in_legacy else []), ""][0]
    return found


def _of_family(expressions: Sequence[Mapping[str, Any]], family: str) -> dict[str, Any]:
    """Return a rule's expressions by kind, nothing for a rule of another family.

    A match of the family itself becomes the kind "family".
    """
    found: dict[str, Any] = {}
    for expression in expressions:
        match = expression.get("match", {})
        left = match.get("left")
        key = left["meta"]["key"] if isinstance(left, Mapping) and "meta" in left and match["op"] == "==" else ""
        named = _NAMED.get((key, str(match.get("right"))))
        if named and named != family:
            return {}
        found |= {"family": named} if named else expression
    return found


def _decides(chain: Mapping[str, Any], rules: _Rules) -> bool:
    """Whether a chain refuses all incoming traffic of a family that it did not accept."""
    key = (chain["family"], chain["table"], chain["name"])
    if chain.get("hook") != "input" or " ".join(key[:2]) == TABLE:
        return False
    if any({"family", "accept"} <= rule.keys() <= _NO_MATCH | {"accept"} for rule in rules.get(key, [])):
        return False
    return chain.get("policy") == "drop" or _refuses(rules, key, set())


def _refuses(rules: _Rules, chain: _Chain, seen: set[_Chain]) -> bool:
    """Whether a chain, or a chain that it always jumps to, refuses the remaining traffic."""
    if chain in seen:
        return False
    seen.add(chain)
    for rule in rules.get(chain, []):
        target = (rule.get("jump") or rule.get("goto") or {}).get("target")
        always = rule.keys() <= _NO_MATCH | {"jump", "goto"}
        if always and (rule.keys() & {"drop", "reject"} or (target and _refuses(rules, (*chain[:2], target), seen))):
            return True
    return False
