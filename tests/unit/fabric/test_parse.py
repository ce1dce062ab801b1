"""Text of sysfs and ping, and facts in typed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import parse, schema


@pytest.mark.parametrize(
    ("text", "speed"), [("200000\n", 200000), ("1", 1), ("0", None), ("-1\n", None), ("", None), ("fast", None)]
)
def test_speed(text: str, speed: int | None) -> None:
    assert parse.speed(text) == speed


PCI_FILES = {
    "current_link_width": "4\n",
    "max_link_width": "",
    "current_link_speed": "32.0 GT/s PCIe\n",
    "max_link_speed": " Unknown\n",
}


@pytest.mark.parametrize("address", ["0000:01:00.1", "10002:01:00.7", "virtio0", "0000:01:00.8", "usb1", "00:01:00.1"])
def test_the_link_of_a_pci_device(address: str) -> None:
    found = {"address": address, "width": 4, "max_width": None, "speed": "32.0 GT/s PCIe", "max_speed": "Unknown"}
    pci = address in ("0000:01:00.1", "10002:01:00.7")
    assert parse.pci_facts(address, PCI_FILES) == (found if pci else None)


@pytest.mark.parametrize(
    ("convert", "text", "expected"),
    [
        (parse.port_state, "4: ACTIVE\n", "ACTIVE"),
        (parse.port_state, "DOWN", "DOWN"),
        (parse.port_state, "", ""),
        (parse.is_gid, "0000:0000:0000:0000:0000:0000:0000:0000\n", False),
        (parse.is_gid, "", False),
        (parse.is_gid, "fe80:0000:0000:0000:0000:0000:0000:0001\n", True),
        (parse.device_type, "INTERFACE=x\nDEVTYPE=vlan\n", "vlan"),
        (parse.device_type, "INTERFACE=x\n", ""),
        (parse.device_type, "", ""),
    ],
)
def test_the_text_of_a_file(convert: Callable[[str], Any], text: str, expected: Any) -> None:
    assert convert(text) == expected


@pytest.mark.parametrize(("kind", "expected"), [("IB/RoCE v1\n", "RoCE v1"), ("RoCE v2\n", "RoCE v2")])
def test_a_gid(kind: str, expected: str) -> None:
    found = {"index": 3, "gid": "::ffff:1", "type": expected, "interface": "port0"}
    assert parse.gid_facts(3, "::ffff:1 \n", kind, "port0\n") == found


def test_a_round_trip_without_a_reply() -> None:
    assert parse.round_trip("3 packets transmitted, 0 received, 100% packet loss") == {
        "lost_percent": 100.0, "min_ms": None, "avg_ms": None, "max_ms": None,
    }  # fmt: skip
    assert parse.round_trip("")["lost_percent"] is None


FACTS: dict[str, Any] = {"mtu": 1500, "addresses": ["10.0.0.1/24", "10.0.1.1/24"]}
OWNER = {"file": "a.yaml", "id": "x", "kind": "ethernets", "by": "name"}
FULL = {
    **FACTS,
    "mac": "02::1",
    "up": True,
    "carrier": True,
    "driver": "mlx5_core",
    "speed": 200000,
    "hca": "rocep1s0f0",
    "pci": {"address": "0000:01:00.0", "width": 4, "max_width": 4, "speed": "32.0 GT/s PCIe", "max_speed": ""},
    "owners": [OWNER],
}
BARE = schema.Interface("", 1500, ("10.0.0.1/24", "10.0.1.1/24"), False, False, "", None, "", None, ())
LINK = schema.PciLink("0000:01:00.0", 4, "32.0 GT/s PCIe")
WHOLE = schema.Interface(
    "02::1", 1500, BARE.addresses, True, True, "mlx5_core", 200000, "rocep1s0f0", LINK, (schema.Owner(**OWNER),)
)
GID = {"index": 3, "gid": "::1", "type": "RoCE v2", "interface": "port0"}
RDMA = {
    "rocep1s0f1": {"interface": "port1", "state": "DOWN", "link_layer": "Ethernet", "gids": [GID]},
    "other": {"gids": []},
}
DEVICES = {
    "rocep1s0f1": schema.RdmaDevice("port1", "DOWN", "Ethernet", (schema.Gid(3, "::1", "RoCE v2"),)),
    "other": schema.RdmaDevice("", "", "", ()),
}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        # Facts without hardware.
        (
            {"interfaces": {"port0": {**FACTS, "mac": None}}, "rdma": {}},
            schema.Network({"port0": BARE}, {}, False, ()),
        ),
        ({"interfaces": {"port0": FULL}, "rdma": RDMA}, schema.Network({"port0": WHOLE}, DEVICES, False, ())),
        (
            {"interfaces": {}, "rdma": {}, "infiniband": True, "unreadable": [{"file": "a", "reason": "b"}]},
            schema.Network({}, {}, True, (schema.Unreadable("a", "b"),)),
        ),
    ],
)
def test_typed_facts(facts: dict[str, Any], expected: schema.Network) -> None:
    assert schema.network(facts) == expected


def test_the_addresses_and_rdma_devices_of_a_node() -> None:
    found = schema.Network({"port0": WHOLE}, DEVICES)
    addresses = ("10.0.0.1", "10.0.1.1", "10.0.0", "10.0.0.1/24", "10.0.2.1")
    assert [WHOLE.has(address) for address in addresses] == [True, True, False, False, False]
    assert [found.carrier(address) for address in addresses] == ["port0", "port0", "", "", ""]
    assert (found.ipv4, found.hcas) == (
        {"10.0.0.1", "10.0.1.1"},
        {"port1": "rocep1s0f1", "port0": "rocep1s0f0"},
    )
