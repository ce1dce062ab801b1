"""Text of sysfs and ping, and facts in typed form."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import parse, schema


@pytest.mark.parametrize(
    ("text", "speed"), [("200000\n", 200000), ("1", 1), ("0", None), ("-1\n", None), ("", None), ("fast", None)]
)
def test_speed(text: str, speed: int | None) -> None:
    assert parse.speed(text) == speed


def test_the_link_of_a_pci_device() -> None:
    files = {
        "current_link_width": "4\n",
        "max_link_width": "",
        "current_link_speed": "32.0 GT/s PCIe\n",
        "max_link_speed": " Unknown\n",
    }
    found = {"width": 4, "max_width": None, "speed": "32.0 GT/s PCIe", "max_speed": "Unknown"}
    for address in ("0000:01:00.1", "10002:01:00.7"):
        assert parse.pci_facts(address, files) == {"address": address, **found}
    for address in ("virtio0", "0000:01:00.8", "usb1", "00:01:00.1"):
        assert parse.pci_facts(address, files) is None


def test_rdma() -> None:
    assert [parse.port_state(text) for text in ("4: ACTIVE\n", "DOWN", "")] == ["ACTIVE", "DOWN", ""]
    free = "0000:0000:0000:0000:0000:0000:0000:0000\n"
    assert [parse.is_gid(text) for text in (free, "", "fe80:0000:0000:0000:0000:0000:0000:0001\n")] == [
        False,
        False,
        True,
    ]
    assert parse.gid_facts(3, "::ffff:1 \n", "IB/RoCE v1\n", "port0\n") == {
        "index": 3,
        "gid": "::ffff:1",
        "type": "RoCE v1",
        "interface": "port0",
    }
    assert parse.gid_facts(0, "x", "RoCE v2\n", "")["type"] == "RoCE v2"
    assert [parse.device_type(text) for text in ("INTERFACE=x\nDEVTYPE=vlan\n", "INTERFACE=x\n", "")] == [
        "vlan",
        "",
        "",
    ]


def test_a_round_trip_without_a_reply() -> None:
    assert parse.round_trip("3 packets transmitted, 0 received, 100% packet loss") == {
        "lost_percent": 100.0, "min_ms": None, "avg_ms": None, "max_ms": None,
    }  # fmt: skip
    assert parse.round_trip("")["lost_percent"] is None


FACTS: dict[str, Any] = {"mtu": 1500, "addresses": ["10.0.0.1/24", "10.0.1.1/24"]}
PCI = {"address": "0000:01:00.0", "width": 4, "max_width": 4, "speed": "32.0 GT/s PCIe", "max_speed": ""}


def test_facts_without_hardware() -> None:
    (found,) = schema.interfaces({"port0": {**FACTS, "mac": None}}).values()
    assert found == schema.Interface("", 1500, ("10.0.0.1/24", "10.0.1.1/24"), False, False, "", None, "", None, ())
    assert [found.has(address) for address in ("10.0.0.1", "10.0.1.1", "10.0.0", "10.0.0.1/24")] == [
        True,
        True,
        False,
        False,
    ]


def test_facts_in_full() -> None:
    owner = {"file": "a.yaml", "id": "x", "kind": "ethernets", "by": "name"}
    more = {
        "mac": "02::1",
        "up": True,
        "carrier": True,
        "driver": "mlx5_core",
        "speed": 200000,
        "hca": "rocep1s0f0",
        "pci": PCI,
        "owners": [owner],
    }
    gid = {"index": 3, "gid": "::1", "type": "RoCE v2", "interface": "port0"}
    rdma = {
        "rocep1s0f1": {"interface": "port1", "state": "DOWN", "link_layer": "Ethernet", "gids": [gid]},
        "other": {"gids": []},
    }
    found = schema.network({"interfaces": {"port0": {**FACTS, **more}}, "rdma": rdma})
    link = schema.PciLink("0000:01:00.0", 4, "32.0 GT/s PCIe")
    whole = schema.Interface(
        "02::1",
        1500,
        tuple(FACTS["addresses"]),
        True,
        True,
        "mlx5_core",
        200000,
        "rocep1s0f0",
        link,
        (schema.Owner(**owner),),
    )
    assert found.interfaces == {"port0": whole}
    assert found.rdma["rocep1s0f1"] == schema.RdmaDevice(
        "port1", "DOWN", "Ethernet", (schema.Gid(3, "::1", "RoCE v2"),)
    )
    assert (found.infiniband, found.unreadable) == (False, ())
    assert (found.carrier("10.0.1.1"), found.carrier("10.0.2.1"), found.ipv4) == ("port0", "", {"10.0.0.1", "10.0.1.1"})
    assert found.hcas == {"port1": "rocep1s0f1", "port0": "rocep1s0f0"}
    unreadable = schema.network(
        {"interfaces": {}, "rdma": {}, "infiniband": True, "unreadable": [{"file": "a", "reason": "b"}]}
    )
    assert (unreadable.infiniband, unreadable.unreadable) == (True, (schema.Unreadable("a", "b"),))
