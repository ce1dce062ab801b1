# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who reaches which port of a node: a table of nftables, or what to tell another firewall that rules there."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils import api_access, launch
from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem

TABLE = "inet gb10"
_SSH_UNITS = frozenset({"ssh.service", "sshd.service", "ssh.socket", "sshd.socket"})
_LAST_PORT = 65535
_PORT = re.compile(r"(\d+)(?:-(\d+))?/(tcp|udp)")
_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,14}[A-Za-z0-9_.@*-]")
#: Expressions of a rule that match nothing: a rule of these alone counts for every packet.
_NO_MATCH = frozenset({"counter", "log", "limit", "drop", "reject", "comment"})

#: Family, table, name.
_Chain = tuple[str, str, str]


@dataclass(frozen=True)
class Access:
    """Who gets in, beside SSH."""

    #: (interface, IPv4 address) by which each peer comes in.
    peers: Sequence[tuple[str, str]]
    #: 0 where no API is.
    api_port: int
    #: Networks; none for all.
    api_clients: Sequence[str]
    #: Such as 8443/tcp or 60000-61000/udp.
    open_ports: Sequence[str]
    #: Names of interfaces, with * for an end, from which all is let in.
    interfaces: Sequence[str]


def of_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the module peer_firewall is told of the plan's node: {peers, peer_ports, api_port, api_clients}."""
    api = plan["node"]["head"] and not api_access.loopback(plan["api_host"])
    return {
        "peers": [{"interface": interface, "address": address} for interface, address in peers(plan)],
        "peer_ports": needs(plan),
        "api_port": plan["api_port"] if api else 0,
        "api_clients": list(plan["api_clients"]) if api else [],
    }


def peers(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return by which interface of the plan's node and from which address each other node comes in, on every rail and on the cluster's network."""
    node = plan["node"]
    found = [(rail["interface"], address) for rail in node["rails"] for address in rail["peers"].values()]
    found += [(node["interface"], other["address"]) for other in plan["nodes"] if other["name"] != node["name"]]
    return sorted(set(found))


def check(access: Access) -> list[Problem]:
    """Return every problem of what the user set."""
    problems = []
    for index, text in enumerate(access.open_ports):
        first, last = _span(text)
        if not 1 <= first <= last <= _LAST_PORT:
            expected = "port/protocol or first-last/protocol, such as 8443/tcp or 60000-61000/udp"
            problems.append(Problem(f"peer_firewall_open_ports[{index}]", repr(text), expected, "correct it"))
    problems += [
        Problem(f"peer_firewall_interfaces[{index}]", repr(name), "the name of an interface, or its begin and a *, such as virbr*", "correct it")
        for index, name in enumerate(access.interfaces)
        if not _INTERFACE.fullmatch(name)
    ]
    return problems


def _span(text: str) -> tuple[int, int]:
    """Return the first and the last port of 8443/tcp or 60000-61000/udp, (0, 0) if it is neither."""
    match = _PORT.fullmatch(text)
    return (int(match[1]), int(match[2] or match[1])) if match else (0, 0)


def ruleset(access: Access, ssh_ports: Iterable[int]) -> str:
    """Return the file for ``nft -f`` that puts our table in the place of an earlier one, in one step, and touches no other.

    What is forwarded to containers is not ours: only what the host itself receives is judged.
    """
    lines = ['iifname "lo" accept']
    lines += [f'iifname "{name}" accept' for name in access.interfaces]
    if access.peers:
        lines.append("iifname . ip saddr @peers accept")
    lines += ["ct state established,related accept", "ct state invalid drop", "meta l4proto { icmp, ipv6-icmp, igmp } accept"]
    # Replies to a broadcast or a multicast are no reply to the kernel: DHCP, and names ending in .local.
    lines += ["udp sport 67 udp dport 68 accept", "udp sport 547 udp dport 546 accept"]
    lines += ["ip daddr 224.0.0.251 udp dport 5353 accept", "ip6 daddr ff02::fb udp dport 5353 accept"]
    lines += [f"tcp dport {port} accept" for port in sorted(set(ssh_ports))]
    if access.api_port:
        lines += [f"{source}tcp dport {access.api_port} accept" for source in _sources(access.api_clients)]
    lines += [f"{text.partition('/')[2]} dport {text.partition('/')[0]} accept" for text in access.open_ports]
    # A client learns at once that it is not let in, instead of waiting.
    lines.append("meta l4proto tcp counter reject with tcp reset")
    entries = ", ".join(f'"{interface}" . {address}' for interface, address in access.peers)
    return "\n".join(
        [
            "# Written by the role peer_firewall of gb10.cluster; changes are overwritten.",
            f"table {TABLE}",
            f"delete table {TABLE}",
            f"table {TABLE} {{",
            *([f"\tset peers {{\n\t\ttypeof iifname . ip saddr\n\t\telements = {{ {entries} }}\n\t}}"] if access.peers else []),
            "\tchain input {",
            "\t\ttype filter hook input priority filter; policy drop;",
            *(f"\t\t{line}" for line in lines),
            "\t}",
            "}",
            "",
        ]
    )


def _sources(clients: Sequence[str]) -> list[str]:
    """Return one match of source addresses for each family, or one that matches all."""
    if not clients:
        return [""]
    networks = [ipaddress.ip_network(client) for client in clients]
    by_family = {family: ", ".join(str(found) for found in networks if found.version == version) for family, version in (("ip", 4), ("ip6", 6))}
    return [f"{family} saddr {{ {found} }} " for family, found in by_family.items() if found]


def unit(nft: str, rules: str) -> str:
    """Return the unit that loads the file ``rules`` at boot, before there is a network. ``nft`` is the program's path."""
    return "\n".join(
        [
            "# Written by the role peer_firewall of gb10.cluster; changes are overwritten.",
            "[Unit]",
            "Description=Firewall of the GB10 cluster",
            "DefaultDependencies=no",
            "Wants=network-pre.target",
            # Debian's own unit begins with `flush ruleset`, also when it is restarted.
            "After=local-fs.target nftables.service",
            "PartOf=nftables.service",
            "Before=network-pre.target",
            "",
            "[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            f"ExecStart={nft} -f {rules}",
            f"ExecStop=-{nft} delete table {TABLE}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def ssh_ports(listeners: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the ports on which SSH servers wait, from node_info's listeners; what a login forwards (ssh -R) is not one."""
    return sorted(
        {
            entry["port"]
            for entry in _reachable(listeners)
            if entry["unit"] in _SSH_UNITS or (entry["process"] == "sshd" and not entry["unit"].endswith(".scope"))
        }
    )


def closed(listeners: Iterable[Mapping[str, Any]], access: Access, ssh: Iterable[int]) -> list[str]:
    """Return what listens on the node and is out of reach for all but peers, such as "3389/tcp (gnome-remote-de)"; our own services are left out."""
    spans = [_span(text) for text in access.open_ports if text.endswith("/tcp")]
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


def ruler(ruleset_json: str, legacy: str, active: Sequence[str]) -> str:
    """Return which other firewall decides what comes in, "" if none does.

    ``ruleset_json`` is what ``nft -j list ruleset`` prints, ``legacy`` what ``iptables-legacy -S`` does, ``active`` those of ufw and firewalld
    that say they are active. A table that only shuts out somebody, such as fail2ban's, rules nothing; one whose last word is no, does.
    """
    if active:
        return active[0]
    objects = json.loads(ruleset_json or '{"nftables": []}')["nftables"]
    chains = [entry["chain"] for entry in objects if "chain" in entry]
    rules: dict[_Chain, list[list[Mapping[str, Any]]]] = {}
    for entry in objects:
        if rule := entry.get("rule"):
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule["expr"])
    for chain in chains:
        table = (chain["family"], chain["table"])
        if chain.get("hook") != "input" or " ".join(table) == TABLE or chain["family"] not in ("ip", "ip6", "inet"):
            continue
        if chain.get("policy") == "drop" or _refuses(rules, (*table, chain["name"]), set()):
            return f"the nftables table {' '.join(table)}"
    if re.search(r"^-P INPUT DROP|^-A INPUT -j (DROP|REJECT)", legacy, re.MULTILINE):
        return "iptables (legacy)"
    return ""


def _refuses(rules: Mapping[_Chain, list[list[Mapping[str, Any]]]], chain: _Chain, seen: set[_Chain]) -> bool:
    """Whether a chain, or one that it always goes on to, refuses whatever it did not accept."""
    if chain in seen:
        return False
    seen.add(chain)
    for expressions in rules.get(chain, []):
        kinds = {kind for expression in expressions for kind in expression}
        if kinds <= _NO_MATCH and kinds & {"drop", "reject"}:
            return True
        target = next((e[kind]["target"] for e in expressions for kind in ("jump", "goto") if kind in e), None)
        if target and kinds <= _NO_MATCH | {"jump", "goto"} and _refuses(rules, (*chain[:2], target), seen):
            return True
    return False


def advice(ruling: str, access: Access, plan_ports: Mapping[str, Any]) -> list[str]:
    """Return what the firewall that rules has to let in, as its own commands where it has some. ``plan_ports`` is needs()."""
    said = [f"{ruling} decides what comes in; nothing of it was changed, and no table of ours is there. It has to let in:"]
    said += [f"  {line}" for line in _needed(access, plan_ports)]
    commands: list[str] = []
    if ruling == "ufw":
        commands = [f"ufw allow in on {interface} from {address}" for interface, address in access.peers]
        clients = (access.api_clients or ["any"]) if access.api_port else []
        commands += [f"ufw allow proto tcp from {client} to any port {access.api_port}" for client in clients]
    elif ruling == "firewalld":
        rich = "firewall-cmd --permanent --add-rich-rule='rule family=\"{}\" source address=\"{}\"{} accept'"
        commands = [rich.format("ipv4", address, "") for _interface, address in access.peers]
        port = f' port port="{access.api_port}" protocol="tcp"'
        commands += [rich.format(f"ipv{ipaddress.ip_network(c).version}", c, port) for c in access.api_clients if access.api_port]
        commands += [f"firewall-cmd --permanent --add-port={access.api_port}/tcp"] if access.api_port and not access.api_clients else []
        commands += ["firewall-cmd --reload"]
    return said + (["With:", *(f"  sudo {command}" for command in commands)] if commands else [])


def needs(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return which ports of the plan's node its peers use, by name; beside them NCCL, Gloo and vLLM take what the kernel gives them."""
    node = plan["node"]
    if plan["executor"] == "ray":
        first, last = launch.RAY_WORKER_PORTS
        fixed = {f"Ray's {name}": port for name, port in launch.ray_ports(plan["ray_port"], node["head"]).items()}
        return {**fixed, "Ray's workers": f"{first}-{last}"}
    return {"rendezvous": plan["rendezvous_port"], "the ranks' end": plan["rendezvous_port"] + 1} if node["head"] else {}


def _needed(access: Access, ports: Mapping[str, Any]) -> list[str]:
    lines = []
    if access.peers:
        fixed = ", ".join(f"{port} ({name})" for name, port in ports.items())
        lines.append(f"from {', '.join(f'{address} on {interface}' for interface, address in access.peers)}:")
        lines.append(f"  all TCP and UDP ports: {fixed}{', ' if fixed else ''}and those of net.ipv4.ip_local_port_range (NCCL, Gloo, vLLM)")
    if access.api_port:
        lines.append(f"from {', '.join(access.api_clients) or 'all clients'}: TCP {access.api_port} (the API)")
    return lines or ["nothing: this node has no peers and no API"]
