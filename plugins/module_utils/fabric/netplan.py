# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Netplan documents: the fabric's own, and foreign ones without the fabric's interfaces.

Source: the netplan YAML reference.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import (
    NETWORK_MANAGER_FILE,
    SPARK_PORTS,
    SYSCTL_FILE,
)

#: Maximum characters of a reason.
_MOST = 300
#: Reply only for addresses of the device that received the request, and send requests only with such an address.
ARP = {"ipv4/arp_ignore": "1", "ipv4/arp_announce": "2"}
#: Settings of a rail. A link-local address from NetworkManager stays when networkd takes over the device. Under
#: NetworkManager, netplan's `link-local: []` lets the kernel create one (observed: NetworkManager 1.42, netplan 0.106).
RAIL = {**ARP, "ipv6/disable_ipv6": "1"}


def document(addresses: Mapping[str, str], mtu: int, renderer: str) -> dict[str, Any]:
    """Return the document of these interfaces, each with its address: static, without IPv6, kept while the peer is off.

    ``ignore-carrier``: a direct cable loses carrier on both ends when one node reboots, and without an address the
    other node's own processes cannot reach each other. NetworkManager's counterpart is network_manager_configuration().
    ``link-local`` is empty, so that RoCE GID indices stay constant. Each interface has its ``renderer``, so that a
    desktop's NetworkManager leaves the fabric to networkd.
    """
    common: dict[str, Any] = {
        "dhcp4": False,
        "dhcp6": False,
        "link-local": [],
        "mtu": mtu,
        "optional": True,
        "renderer": renderer,
    }
    if renderer == "networkd":
        common["ignore-carrier"] = True
    else:
        # NetworkManager activates a device's last used profile, unless another one has a higher priority.
        common["networkmanager"] = {"passthrough": {"connection.autoconnect-priority": "999"}}
    return {
        "network": {
            "version": 2,
            "ethernets": {name: {"addresses": [address], **common} for name, address in addresses.items()},
        }
    }


def network_manager_configuration(interfaces: Sequence[str]) -> str:
    """Return settings for NetworkManager to keep static addresses without carrier.

    Source: NetworkManager.conf(5), ignore-carrier.
    """
    match = ",".join(f"interface-name:{interface}" for interface in interfaces)
    return f"[device-gb10-qsfp]\nmatch-device={match}\nignore-carrier=yes\n"


def files(interfaces: Sequence[str], renderer: str) -> dict[str, str]:
    """Return the other files of a fabric, path to text; "" for a file that must not exist."""
    return {
        SYSCTL_FILE: sysctl_configuration(interfaces),
        NETWORK_MANAGER_FILE: network_manager_configuration(interfaces) if renderer == "NetworkManager" else "",
    }


def sysctl_configuration(interfaces: Sequence[str]) -> str:
    """Return settings for each device to reply to ARP for its own address only, and for rails to have no IPv6.

    Both PCIe functions of a port receive the same requests, and by default Linux replies for any address of the host.
    Then the traffic of both rails ends at one function, at half the bandwidth, and RoCE ends at a device without the
    address.
    Sources: Linux ip-sysctl, arp_ignore and arp_announce; AMD Instinct, RoCE cluster network configuration guide (ARP
    flux); observed in the lab.
    """
    settings = {name: RAIL if name in interfaces else ARP for name in hearing(interfaces)}
    # One per line, such as net.ipv4.conf.enp1s0f1np1.arp_ignore = 1.
    return "".join(
        f"net.{key.replace('/', f'.conf.{name}.')} = {value}\n"
        for name, wanted in settings.items()
        for key, value in wanted.items()
    )


def hearing(interfaces: Sequence[str]) -> list[str]:
    """Return the interfaces of all PCIe functions of these ports: all receive the same requests, even if unused."""
    twins = [
        twin.interface for port in SPARK_PORTS.values() if any(t.interface in interfaces for t in port) for twin in port
    ]
    return [*interfaces, *(name for name in twins if name not in interfaces)]


def rejection(text: str) -> tuple[str, str]:
    """Return (file, reason) from the errors of netplan's generator; the file is "" if they name none.

    Warnings may precede the line with the error. Later lines quote the file, with passwords of Wi-Fi.
    """
    if found := re.search(r"^(/\S[^:\n]*\.yaml):(\d+):\d+: (.+)$", text, re.MULTILINE):
        return found[1], f"line {found[2]}: {found[3]}"[:_MOST]
    lines = [line for line in text.splitlines() if line.strip() and "WARNING **" not in line]
    return "", (lines[0].strip() if lines else "no reason given")[:_MOST]


def without(parsed: Any, interfaces: Sequence[str]) -> tuple[Any, list[str]]:
    """Remove interfaces from a parsed netplan document. Returns it without them, and those that it defined by name."""
    ethernets = _ethernets(parsed)
    taken = [name for name in interfaces if name in ethernets]
    if not taken:
        return parsed, []
    rest = {name: definition for name, definition in ethernets.items() if name not in taken}
    network = {key: value for key, value in parsed["network"].items() if key != "ethernets"}
    return {**parsed, "network": {**network, **({"ethernets": rest} if rest else {})}}, taken


def with_again(parsed: Any, before: Any, interfaces: Collection[str]) -> Any:
    """Return a parsed netplan document, with an earlier document's definitions of interfaces that it lacks."""
    ethernets = _ethernets(parsed)
    missing = {
        name: definition
        for name, definition in _ethernets(before).items()
        if name in interfaces and name not in ethernets
    }
    if not missing:
        return parsed
    document = parsed if isinstance(parsed, Mapping) else {}
    network = document["network"] if isinstance(document.get("network"), Mapping) else {"version": 2}
    return {**document, "network": {**network, "ethernets": {**ethernets, **missing}}}


def _ethernets(parsed: Any) -> Mapping[str, Any]:
    network = parsed.get("network") if isinstance(parsed, Mapping) else None
    ethernets = network.get("ethernets") if isinstance(network, Mapping) else None
    return ethernets if isinstance(ethernets, Mapping) else {}
