"""Sparks as the fabric's input, and answers of cabled Sparks to discovery, generated from the list of cables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Network, interfaces
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS, FabricNode

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAUl18sO9Pe4xJPYWQHLzOzJPis3uaVTTuvUOr7cuHcC"
End = tuple[int, int]  # machine, port


def fabric_nodes(count: int, ports: tuple[int, ...] = (1,)) -> list[FabricNode]:
    """Return nodes whose management network is on enP7s7."""
    return [
        FabricNode(
            name(number),
            ports,
            management=f"192.168.1.{10 + number}",
            network=Network(interfaces({"enP7s7": {"mtu": 1500, "addresses": [f"192.168.1.{10 + number}/24"]}}), {}),
        )
        for number in range(1, count + 1)
    ]


def mac(machine: int, port: int, twin: int) -> str:
    return f"02:00:00:00:{machine:02x}:{port * 2 + twin:02x}"


def name(machine: int) -> str:
    return f"spark{machine}"


def sees(machine: int, port: int, twin: int, interface: str = "enp1s0f0np0") -> dict[str, str]:
    """Return a neighbor entry: one PCIe function of a machine's port, on an interface of the machine that detects
    it."""
    return {
        "mac": mac(machine, port, twin),
        "address": f"fe80::{machine}:{port or ''}{twin}%{interface}",
        "name": name(machine),
        # Each machine has a different key; only the last letters differ.
        "host_key": f"{KEY[:-1]}{machine}",
    }


def machine(number: int, wires: Iterable[tuple[End, ...]], **changes: Any) -> dict[str, Any]:
    """Return a given machine with the neighbors on its wires. A wire is two ports or the ports on a switch. On a
    switch, the PCIe functions of a port detect each other too."""
    neighbors: dict[str, list[dict[str, str]]] = {}
    interfaces = {
        "enP7s7": {
            "mac": mac(number, 9, 0),
            "up": True,
            "carrier": True,
            "addresses": [f"192.168.1.{number}/24"],
            "mtu": 1500,
        }
    }
    for port, twins in SPARK_PORTS.items():
        wire = next((wire for wire in wires if (number, port) in wire), ())
        for index, twin in enumerate(twins):
            interfaces[twin.interface] = {
                "mac": mac(number, port, index),
                "up": True,
                "carrier": bool(wire),
                "addresses": [],
                "mtu": 1500,
            }
            if wire:
                ends = [(other, there, side) for other, there in wire for side in (0, 1)]
                seen = (
                    [end for end in ends if end != (number, port, index)]
                    if len(wire) > 2
                    else [(*end[:2], index) for end in ends[::2]]
                )
                neighbors[twin.interface] = [sees(*end, twin.interface) for end in seen if end != (number, port, index)]
    return {
        "name": name(number),
        "address": f"192.168.1.{number}",
        "login": {"user": "nvidia", "key": "", "port": None, "arguments": "", "local": False},
        "unreachable": "",
        "observed": {
            "hostname": name(number),
            "management": f"192.168.1.{number}",
            "interfaces": interfaces,
            "neighbors": neighbors,
            "unheard": {},
            "notes": [],
        },
        **changes,
    }


def machines(*wires: tuple[End, ...], count: int | None = None) -> list[dict[str, Any]]:
    numbers = range(1, (count or max(number for wire in wires for number, _port in wire)) + 1)
    return [machine(number, wires) for number in numbers]


PAIR = ((1, 1), (2, 1))
RING3 = (((1, 0), (2, 1)), ((2, 0), (3, 1)), ((3, 0), (1, 1)))


def asked(stranger: Mapping[str, Any], *wires: tuple[End, ...], **changes: Any) -> dict[str, Any]:
    """Return a discovered machine with its answer."""
    number = int(stranger["label"].removeprefix("spark"))
    return {**stranger, "observed": machine(number, wires)["observed"], **changes}
