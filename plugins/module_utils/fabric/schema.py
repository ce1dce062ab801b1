# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's network facts, as the module fabric_info returns them, in typed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Owner:
    """The configuration of a device. ``kind``: netplan's section or NetworkManager; ``by``: name, match or member."""

    file: str
    id: str
    kind: str
    by: str


@dataclass(frozen=True)
class PciLink:
    """A PCIe link: address of the function, lanes (None if unknown) and speed such as "32.0 GT/s PCIe"."""

    address: str
    width: int | None
    speed: str


@dataclass(frozen=True)
class Interface:
    """A network device. ``addresses`` are IPv4 with prefix length, ``speed`` in Mb/s, ``hca`` its RDMA device or ""."""

    mac: str
    mtu: int
    addresses: tuple[str, ...]
    up: bool
    carrier: bool
    driver: str
    speed: int | None
    hca: str
    pci: PciLink | None
    owners: tuple[Owner, ...]

    def has(self, address: str) -> bool:
        """Return whether the device has an address, given without its prefix length."""
        return address in (entry.split("/")[0] for entry in self.addresses)


@dataclass(frozen=True)
class Gid:
    """An entry of a GID table."""

    index: int
    gid: str
    type: str


@dataclass(frozen=True)
class RdmaDevice:
    """Port 1 of an RDMA device, with the name of its network device, "" if unknown."""

    interface: str
    state: str
    link_layer: str
    gids: tuple[Gid, ...]


@dataclass(frozen=True)
class Unreadable:
    """A network configuration file that cannot be parsed."""

    file: str
    reason: str


@dataclass(frozen=True)
class Network:
    """All network facts of a node. ``infiniband``: whether /dev/infiniband exists."""

    interfaces: Mapping[str, Interface]
    rdma: Mapping[str, RdmaDevice]
    infiniband: bool = False
    unreadable: tuple[Unreadable, ...] = ()

    def carrier(self, address: str) -> str:
        """Return the interface that has an address, "" if there is none."""
        return next((name for name, found in self.interfaces.items() if found.has(address)), "")

    @property
    def ipv4(self) -> set[str]:
        """The IPv4 addresses of all interfaces, without prefix length."""
        return {address.split("/")[0] for found in self.interfaces.values() for address in found.addresses}

    @property
    def hcas(self) -> dict[str, str]:
        """Network device -> RDMA device, from the node's sysfs; devices without one are left out."""
        found = {device.interface: hca for hca, device in sorted(self.rdma.items()) if device.interface}
        return found | {name: facts.hca for name, facts in self.interfaces.items() if facts.hca}


def network(facts: Mapping[str, Any]) -> Network:
    """Parse the facts of fabric_info or node_info: interfaces, rdma, infiniband, unreadable."""
    return Network(
        interfaces=interfaces(facts["interfaces"]),
        rdma=rdma_devices(facts["rdma"]),
        infiniband=facts.get("infiniband", False),
        unreadable=tuple(Unreadable(entry["file"], entry["reason"]) for entry in facts.get("unreadable", ())),
    )


def interfaces(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Interface]:
    """Parse devices by name. Facts without hardware, as io_node.interfaces returns them, leave it unknown."""
    return {
        name: Interface(
            mac=found.get("mac") or "",
            mtu=found["mtu"],
            addresses=tuple(found["addresses"]),
            up=found.get("up", False),
            carrier=found.get("carrier", False),
            driver=found.get("driver", ""),
            speed=found.get("speed"),
            hca=found.get("hca", ""),
            pci=PciLink(**{key: found["pci"][key] for key in ("address", "width", "speed")})
            if found.get("pci")
            else None,
            owners=tuple(Owner(each["file"], each["id"], each["kind"], each["by"]) for each in found.get("owners", ())),
        )
        for name, found in facts.items()
    }


def rdma_devices(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, RdmaDevice]:
    """Parse RDMA devices by name."""
    return {
        name: RdmaDevice(
            found.get("interface", ""),
            found.get("state", ""),
            found.get("link_layer", ""),
            tuple(Gid(entry["index"], entry["gid"], entry["type"]) for entry in found["gids"]),
        )
        for name, found in facts.items()
    }


def drift(rails: Mapping[str, str], mtu: int, interfaces: Mapping[str, Interface]) -> list[str]:
    """Return how a node's interfaces differ from its rails, one sentence each; empty when the plan is live.

    ``rails`` maps interfaces to addresses with prefix length.
    """
    differences = []
    for name, address in rails.items():
        found = interfaces.get(name)
        if found is None:
            differences.append(f"{name} does not exist")
            continue
        if address not in found.addresses:
            differences.append(f"{name} has {', '.join(found.addresses) or 'no address'} instead of {address}")
        if found.mtu != mtu:
            differences.append(f"{name} has MTU {found.mtu} instead of {mtu}")
    return differences
