# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Access to the ports of a node: an nftables table, or advice for another active firewall."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv

TABLE = "inet gb10"
_WRITTEN = "# Written by the role peer_firewall of gb10.cluster; changes are overwritten."
#: The services that open ports to peers and clients.
OPENING = (f"{launch_argv.RAY}.service", f"{launch_argv.VLLM}.service")
#: Address families: nft's name and the common name.
FAMILIES: Mapping[str, str] = {"ip": "IPv4", "ip6": "IPv6"}
_VERSIONS: Mapping[str, int] = {"ip": 4, "ip6": 6}
#: The commands of other firewalls, for a peer, a client of a port, all clients of a port, and at the end.
_RICH = 'firewall-cmd --permanent --add-rich-rule=\'rule family="{}" source address="{}"{} accept\''
_COMMANDS: Mapping[str, tuple[str, str, str, Sequence[str]]] = {
    "ufw": (
        "ufw allow in on {interface} from {address}",
        "ufw allow proto tcp from {client} to any port {port}",
        "ufw allow proto tcp from any to any port {port}",
        (),
    ),
    "firewalld": (
        _RICH.format("ipv4", "{address}", ""),
        _RICH.format("ipv{version}", "{client}", ' port port="{port}" protocol="tcp"'),
        "firewall-cmd --permanent --add-port={port}/tcp",
        ("firewall-cmd --reload",),
    ),
}
_LAST_PORT = 65535
_PORT = re.compile(r"(\d+)(?:-(\d+))?/(tcp|udp)")
_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,14}[A-Za-z0-9_.@*-]")


@dataclass(frozen=True)
class Access:
    """Permitted access, in addition to SSH."""

    #: (incoming interface, IPv4 address) of each peer.
    peers: Sequence[tuple[str, str]]
    #: 0 on a node without an API.
    api_port: int
    #: Networks; empty for all.
    api_clients: Sequence[str]
    #: Such as 8443/tcp or 60000-61000/udp.
    open_ports: Sequence[str]
    #: Trusted interfaces, by name or by prefix and *.
    interfaces: Sequence[str]
    #: The ports of metrics, and the networks that reach them; without networks, no host does.
    monitoring_ports: Sequence[int] = ()
    monitoring_clients: Sequence[str] = ()
    #: The port that wakes a resting model, 0 without one. The API's clients reach it.
    wake_port: int = 0
    #: The ports of the ranks' services, such as 8000 or 20000-20999, and the IDs of the users who may serve them.
    served_ports: Sequence[str] = ()
    serving_users: Sequence[int] = ()

    def opened(self) -> list[tuple[int, Sequence[str], str]]:
        """Return (port, networks, purpose) of the cluster's ports that others reach, without networks for all."""
        api = [(self.api_port, self.api_clients, "the API")] if self.api_port else []
        api += [(self.wake_port, self.api_clients, "a resting model")] if self.wake_port else []
        ports = self.monitoring_ports if self.monitoring_clients else ()
        return [*api, *((port, self.monitoring_clients, "metrics") for port in ports)]


def check(access: Access) -> list[Problem]:
    """Return every problem of the user's settings."""
    ports = "port/protocol or first-last/protocol, such as 8443/tcp or 60000-61000/udp"
    interfaces = "an interface name, or a prefix and *, such as virbr*"
    return [
        *_wrong("peer_firewall_open_ports", access.open_ports, lambda text: any(span(text)), ports),
        *_wrong("peer_firewall_trusted_interfaces", access.interfaces, _INTERFACE.fullmatch, interfaces),
        *check_clients(access.monitoring_clients),
    ]


def check_clients(clients: Sequence[str], path: str = "monitoring_clients") -> list[Problem]:
    """Return every problem of monitoring_clients, or of those at ``path``, which a unit of root has too."""
    return _wrong(
        path, clients, api_access.is_network, "an address or a network, such as 192.168.1.5 or 192.168.1.0/24"
    )


def _wrong(path: str, texts: Sequence[str], right: Callable[[str], object], expected: str) -> list[Problem]:
    """Return a problem for each entry of a list that is not right."""
    entries = enumerate(texts)
    return [Problem(f"{path}[{n}]", repr(text), expected, "correct it") for n, text in entries if not right(text)]


def span(text: str) -> tuple[int, int]:
    """Return the first and the last port of 8443/tcp or 60000-61000/udp, (0, 0) if it is neither."""
    match = _PORT.fullmatch(text)
    if not match:
        return 0, 0
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if 1 <= first <= last <= _LAST_PORT else (0, 0)


#: Python's files have no tabs, which nft writes.
_INDENT = " " * 4
#: Replaces the table in one step. Each part in capitals is lines, or nothing.
_RULESET = f"""\
{_WRITTEN}
table {TABLE}
delete table {TABLE}
table {TABLE} {{
%(SET)s
    chain input {{
        type filter hook input priority filter; policy drop;
        iifname "lo" accept
%(TRUSTED)s
        ct state established,related accept
        ct state invalid drop
        meta l4proto {{ 1, 2, 58 }} accept
        udp sport 67 udp dport 68 accept
        udp sport 547 udp dport 546 accept
        ip daddr 224.0.0.251 udp dport 5353 accept
        ip6 daddr ff02::fb udp dport 5353 accept
%(OPENED)s
        meta l4proto tcp counter reject with tcp reset
    }}
%(SERVING)s
}}
"""
#: The peers, which the chain of incoming traffic matches.
_SET = """\
    set peers {
        typeof iifname . ip saddr
        elements = { %s }
    }"""
#: Lets only the given users serve on the ranks' ports.
_SERVING = """\
    chain serving {
        type filter hook output priority filter; policy accept;
        tcp flags & syn != syn accept
        tcp sport { %(ports)s } meta skuid { %(users)s } accept
        tcp sport { %(ports)s } counter drop
    }"""


def ruleset(access: Access, ssh_ports: Iterable[int], others: Iterable[str] = ()) -> str:
    """Return the file for ``nft -f`` that replaces the collection's table in one step, and changes no other table.

    Traffic forwarded to containers is not filtered, only traffic to the host itself, without the families of
    ``others``: another firewall decides about them, and accept here leaves the decision to it.

    1, 2 and 58 are ICMP, IGMP and ICMPv6: nft reads their names from the package netbase, which a host may lack. The
    kernel does not track replies to broadcast or multicast as replies: DHCP, and names ending in .local. A client that
    is refused at the end fails at once, instead of waiting.

    Any local user may listen on a free port, and clients and nodes send the API's key and Ray's token to whoever
    answers there. Without a SYN or SYN-ACK of the port, no connection begins: two that connect to each other at the
    same time need a SYN of each. A SYN cookie belongs to no user, and goes too.
    """
    trusted = [f"meta nfproto {FAMILIES[family].lower()}" for family in others]
    trusted += [f'iifname "{name}"' for name in access.interfaces]
    trusted += ["iifname . ip saddr @peers"] if access.peers else []
    opened = [f"tcp dport {port}" for port in sorted(set(ssh_ports))]
    opened += [
        f"{source}tcp dport {port}" for port, clients, _purpose in access.opened() for source in _sources(clients)
    ]
    opened += [
        f"{protocol} dport {ports}" for ports, _slash, protocol in (text.partition("/") for text in access.open_ports)
    ]
    entries = ", ".join(f'"{interface}" . {address}' for interface, address in access.peers)
    serving = {"ports": ", ".join(access.served_ports), "users": ", ".join(map(str, access.serving_users))}
    text = _RULESET % {
        "SET": _SET % entries if entries else "",
        "TRUSTED": "\n".join(f"{_INDENT * 2}{match} accept" for match in trusted),
        "OPENED": "\n".join(f"{_INDENT * 2}{match} accept" for match in opened),
        "SERVING": _SERVING % serving if all(serving.values()) else "",
    }
    return re.sub(r"\n{2,}", "\n", text).replace(_INDENT, "\t")


def _sources(clients: Sequence[str]) -> list[str]:
    """Return one match of source addresses for each family, or one that matches all."""
    networks = [ipaddress.ip_network(client) for client in clients]
    found = {
        family: ", ".join(str(network) for network in networks if network.version == version)
        for family, version in _VERSIONS.items()
    }
    return [f"{family} saddr {{ {each} }} " for family, each in found.items() if each] or [""]


def unit(nft: str, rules: str) -> str:
    """Return the unit that loads the file ``rules`` at boot, before the network. ``nft`` is the program's path."""
    services = " ".join(OPENING)
    return "\n".join(
        [
            _WRITTEN,
            "[Unit]",
            "Description=Firewall of the GB10 cluster",
            "DefaultDependencies=no",
            "Wants=network-pre.target",
            "After=local-fs.target nftables.service",
            f"Before=network-pre.target {services}",
            "",
            "[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            f"ExecStart={nft} -f {rules}",
            f"ExecReload={nft} -f {rules}",
            f"ExecStop=-{nft} delete table {TABLE}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            # A Requires= in the services' own units would restart them if the firewall is turned on or off.
            "# Services that open ports do not start without this unit.",
            f"RequiredBy={services}",
            "",
        ]
    )


def again(nft: str, rules: str) -> str:
    """Return a drop-in for Debian's nftables.service, whose start, restart and reload flush all tables.

    PartOf= in the collection's unit would also restart units that require it, such as the model, and does not cover a
    start.
    """
    return "\n".join(
        [
            _WRITTEN,
            "[Service]",
            "# A failure here must not stop the service, which would flush all rules.",
            f"ExecStartPost=-{nft} -f {rules}",
            f"ExecReload={nft} -f {rules}",
            "",
        ]
    )


def advice(active_firewalls: Mapping[str, str], access: Access, plan_ports: Mapping[str, Any]) -> list[str]:
    """Return the traffic that the active firewalls must allow, with their commands if known.

    ``active_firewalls`` is firewall_host.active_firewalls(), ``plan_ports`` are the fixed ports of peers by name.
    """
    lines = []
    for active_firewall in dict.fromkeys(filter(None, active_firewalls.values())):
        families = [family for family in FAMILIES if active_firewalls[family] == active_firewall]
        family = "".join(f" {FAMILIES[each]}" for each in families) if len(families) != len(FAMILIES) else ""
        inactive = f"does not filter{family}" if family else "is not loaded"
        unchanged = f"Its rules were not changed, and the table {TABLE} {inactive}"
        lines.append(f"{active_firewall} controls incoming{family} traffic. {unchanged}. {active_firewall} must allow:")
        lines += [f"  {line}" for line in _needed(access, plan_ports, families)]
        if commands := _commands(active_firewall, access):
            lines += ["With:", *(f"  sudo {command}" for command in commands)]
    return lines


def _commands(active_firewall: str, access: Access) -> list[str]:
    """Return the commands of a known firewall that allow the traffic, [] for another one."""
    if active_firewall not in _COMMANDS:
        return []
    peer, client, everyone, last = _COMMANDS[active_firewall]
    found = [peer.format(interface=interface, address=address) for interface, address in access.peers]
    for port, clients, _purpose in access.opened():
        found += [client.format(version=_version(each), client=each, port=port) for each in clients]
        found += [] if clients else [everyone.format(port=port)]
    return [*found, *last]


def _version(network: str) -> int:
    return ipaddress.ip_network(network).version


def _needed(access: Access, ports: Mapping[str, Any], families: Sequence[str]) -> list[str]:
    lines = []
    # Peers have IPv4 addresses.
    if access.peers and "ip" in families:
        fixed = ", ".join(f"{port} ({name})" for name, port in ports.items())
        lines.append(f"from {', '.join(f'{address} on {interface}' for interface, address in access.peers)}:")
        lines.append(
            f"  all TCP and UDP ports: {fixed}{', ' if fixed else ''}and those of net.ipv4.ip_local_port_range "
            "(NCCL, Gloo, vLLM)"
        )
    versions = [_VERSIONS[family] for family in families]
    for port, networks, purpose in access.opened():
        clients = [client for client in networks if _version(client) in versions]
        if clients or not networks:
            lines.append(f"from {', '.join(clients) or 'all clients'}: TCP {port} ({purpose})")
    return lines or ["nothing: this node has no peers and no API in this family"]
