"""Owners of an interface, for cases that the simulated machines (test_io_facts) lack."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import owners
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.owners import Definition, Device, definitions, profile

TWIN = Device("enp1s0f1np1", "4c:bb:47:00:00:03", "mlx5_core")
WIFI = Device("wlP9s9", "4c:bb:47:00:00:09", "mt7925e", "wlan")
BOND = Device("bond0", "4c:bb:47:00:00:03", "", "bond", physical=False)
VETH = Device("enp2s0", "02:00:00:00:00:01", "", "", physical=False)


def how(device: Device, *documents: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The documents, numbered from 0, that own the device: (number, identifier, by)."""
    found = [
        entry for number, network in enumerate(documents) for entry in definitions(str(number), {"network": network})
    ]
    return [(entry["file"], entry["id"], entry["by"]) for entry in owners.owners([device], found, [])[device.name]]


def matching(**match: Any) -> dict[str, Any]:
    return {"ethernets": {"cx7": {"match": match}}}


@pytest.mark.parametrize(
    ("device", "match", "owned"),
    [
        pytest.param(TWIN, {"name": "enp1s0f1np1"}, True, id="name"),
        pytest.param(TWIN, {"name": "enp1s0f?np[01]"}, True, id="glob"),
        pytest.param(TWIN, {"name": "enp"}, False, id="a prefix is no match"),
        pytest.param(TWIN, {"name": "ENP1S0F1NP1"}, False, id="case counts"),
        pytest.param(TWIN, {"driver": "mlx5_core"}, True, id="driver"),
        pytest.param(TWIN, {"driver": ["r8*", "mlx5*"]}, True, id="drivers"),
        pytest.param(WIFI, {"driver": ["r8*", "mlx5*"]}, False, id="other drivers"),
        pytest.param(TWIN, {"macaddress": "4C:BB:47:00:00:03"}, True, id="MAC address"),
        pytest.param(TWIN, {"macaddress": "4C:BB:47:00:00:04"}, False, id="another's MAC address"),
        pytest.param(BOND, {"macaddress": "4C:BB:47:00:00:03"}, False, id="a bond only borrows its MAC address"),
        pytest.param(TWIN, {"name": "enp*", "driver": "r8127"}, False, id="everything given must fit"),
        pytest.param(TWIN, {}, True, id="nothing given: any cable"),
        pytest.param(WIFI, {}, False, id="nothing given: no Wi-Fi"),
        pytest.param(VETH, {}, False, id="nothing given: nothing virtual"),
        pytest.param(VETH, {"name": "enp*"}, True, id="a glob takes what is virtual too"),
    ],
)
def test_match(device: Device, match: dict[str, Any], owned: bool) -> None:
    assert how(device, matching(**match)) == ([("0", "cx7", "match")] if owned else [])


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([{"ethernets": {"enp1s0f1np1": {}}}], [("0", "enp1s0f1np1", "name")], id="by name"),
        pytest.param(
            [{"ethernets": {"enp1s0f1np1": {"match": {"name": "eth9"}}}}],
            [],
            id="with a match the identifier means nothing",
        ),
        pytest.param(
            [matching(name="enp1*"), {"ethernets": {"cx7": {"mtu": "9000"}}}],
            [("0", "cx7", "match"), ("1", "cx7", "match")],
            id="a later file amends",
        ),
        pytest.param(
            [{"ethernets": {"cx7": {"mtu": "9000"}}}, matching(name="enp1*")],
            [("0", "cx7", "match"), ("1", "cx7", "match")],
            id="a match in a later file is that of the earlier one too",
        ),
        pytest.param(
            [matching(name="eth9"), matching(name="enp1*")],
            [("0", "cx7", "match"), ("1", "cx7", "match")],
            id="a later match overrides",
        ),
        pytest.param(
            [{"ethernets": {"cx7": {"match": {"macaddress": "4c:bb:47:00:00:03"}, "set-name": "enp1s0f1np1"}}}],
            [("0", "cx7", "match")],
            id="renamed",
        ),
        pytest.param(
            [{"ethernets": {"cx7": {"match": {"macaddress": "4c:bb:47:00:00:03"}, "set-name": "qsfp1"}}}],
            [],
            id="renamed from this name",
        ),
        pytest.param(
            [{"ethernets": {"cx7": {"match": {"driver": "mlx5*"}, "set-name": "enp1s0f1np1"}}}, matching(name="eth9")],
            [("0", "cx7", "match"), ("1", "cx7", "match")],
            id="renamed, by a definition that a later file amends",
        ),
        pytest.param(
            [matching(name="enp1*"), {"bridges": {"br0": {"interfaces": ["cx7"]}}}],
            [("0", "cx7", "match"), ("1", "br0", "member")],
            id="a member of a later file's bridge",
        ),
        pytest.param(
            [{"vlans": {"v10": {"id": "10", "link": "enp1s0f1np1"}}}],
            [("0", "v10", "member")],
            id="link to what no file defines",
        ),
        pytest.param([{"ethernets": {"eth9": {}}, "bonds": {"bond0": {"interfaces": ["eth9"]}}}], [], id="others"),
    ],
)
def test_owners(documents: list[dict[str, Any]], expected: list[tuple[str, str, str]]) -> None:
    assert how(TWIN, *documents) == expected


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("text", "the document is not a mapping"),
        ({"network": ""}, "network is not a mapping"),
        ({"network": {"ethernets": ["enp1s0f1np1"]}}, "network.ethernets is not a mapping"),
        ({"network": {"ethernets": {"cx7": ""}}}, "network.ethernets.cx7 is not a mapping"),
        ({"network": {"ethernets": {"cx7": {"match": "enp*"}}}}, "network.ethernets.cx7.match is not a mapping"),
        (
            {"network": {"ethernets": {"cx7": {"match": {"name": {}}}}}},
            "network.ethernets.cx7.match.name is neither a text nor a list of texts",
        ),
        ({"network": {"bonds": {"bond0": {"interfaces": [["cx7"]]}}}}, "network.bonds.bond0.interfaces is neither"),
    ],
)
def test_what_netplan_refuses_is_said(document: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        definitions("x.yaml", document)


@pytest.mark.parametrize(
    "document",
    [None, {}, {"network": {"version": "2", "renderer": "networkd"}}],
    ids=["empty", "no network", "no definition"],
)
def test_no_definition(document: Any) -> None:
    assert definitions("x.yaml", document) == []


def test_definition() -> None:
    document = {"network": {"bonds": {"bond0": {"interfaces": ["a", "b"]}}}}
    assert definitions("x.yaml", document) == [Definition("x.yaml", "bond0", "bonds", members=("a", "b"))]


NM = "NetworkManager"


@pytest.mark.parametrize(
    ("documents", "owned"),
    [
        # The file of a profile for any device, as NetworkManager writes it.
        ([{"ethernets": {"NM-1": {"renderer": NM, "match": {}}}}], False),
        ([{"ethernets": {"renderer": NM, "NM-1": {"match": {}}}}], False),
        ([{"renderer": NM, "ethernets": {"NM-1": {"match": {}}}}], False),
        ([{"ethernets": {"NM-1": {"match": {}}}}, {"ethernets": {"NM-1": {"renderer": NM}}}], False),
        ([{"renderer": NM, "ethernets": {"NM-1": {"renderer": "networkd", "match": {}}}}], True),
        ([{"ethernets": {"NM-1": {"renderer": NM, "match": {"name": "enp*"}}}}], True),
        ([{"ethernets": {"NM-1": {"renderer": NM, "match": {"macaddress": TWIN.mac}}}}], True),
        ([{"ethernets": {"enp1s0f1np1": {"renderer": NM}}}], True),
    ],
)
def test_a_profile_of_network_manager_for_any_device_owns_nothing(documents: list[dict[str, Any]], owned: bool) -> None:
    assert bool(how(TWIN, *documents)) is owned


UUID = "0b0e2c1a-7d5e-4f9a-9a6a-0123456789ab"


@pytest.mark.parametrize(
    ("file", "command"),
    [
        (f"/etc/netplan/90-NM-{UUID}.yaml", f"`sudo nmcli connection delete {UUID}`"),
        (f"/etc/netplan/90-NM-{UUID}-my%20home.yaml", f"`sudo nmcli connection delete {UUID}`"),
        ("/etc/netplan/40-cx7.yaml", "`sudo mv /etc/netplan/40-cx7.yaml /etc/netplan/40-cx7.yaml.off`"),
        ("/etc/netplan/my file.yaml", "`sudo mv '/etc/netplan/my file.yaml' '/etc/netplan/my file.yaml'.off`"),
        ("/etc/netplan", "correct the file that `sudo netplan generate` names"),
    ],
)
def test_a_repair_has_its_command(file: str, command: str) -> None:
    assert command in owners.repair(file)


def test_netplan_files_are_sorted_by_name_and_shadowed_by_folder() -> None:
    listings = {
        "/lib/netplan": ["generate", "10.yaml", "20.yaml", "30.yaml"],
        "/etc/netplan": ["20.yaml", "15.yaml", "20.yaml.bak", ".15.yaml.swp", ".hidden.yaml", "B.yaml", "a.yaml"],
        "/run/netplan": ["20.yaml", "05.yaml"],
    }
    assert owners.netplan_files(listings) == [
        "/run/netplan/05.yaml",
        "/lib/netplan/10.yaml",
        "/etc/netplan/15.yaml",
        "/run/netplan/20.yaml",
        "/lib/netplan/30.yaml",
        "/etc/netplan/B.yaml",
        "/etc/netplan/a.yaml",
    ]


def test_network_manager_files() -> None:
    etc, run = owners.NETWORK_MANAGER_FOLDERS
    names = ["a.nmconnection", ".a.nmconnection", "a.nmconnection~", "a.bak", "old", "old~", "netplan-a.nmconnection"]
    assert owners.network_manager_files({etc: names, run: names}) == [
        f"{etc}/a.nmconnection",
        f"{etc}/netplan-a.nmconnection",
        f"{etc}/old",
        f"{run}/a.nmconnection",
    ]


ETHERNET = "[connection]\nid=x\ntype=ethernet\n"


@pytest.mark.parametrize(
    ("device", "text", "by"),
    [
        pytest.param(TWIN, f"{ETHERNET}interface-name=enp1s0f1np1\n", "name", id="name"),
        pytest.param(TWIN, f"# said\n\n{ETHERNET}interface-name = enp1s0f0np0\n", "", id="another's name"),
        pytest.param(TWIN, ETHERNET, "match", id="any cable"),
        pytest.param(VETH, ETHERNET, "", id="any cable, but nothing virtual"),
        pytest.param(
            WIFI, "[connection]\nid=x\ntype=802-11-wireless\n[802-11-wireless]\nssid=y\n", "match", id="any Wi-Fi"
        ),
        pytest.param(TWIN, "[connection]\nid=x\ntype=vpn\n", "", id="no device"),
        pytest.param(TWIN, f"{ETHERNET}[802-3-ethernet]\nmac-address=4C:BB:47:00:00:03\n", "match", id="MAC address"),
        pytest.param(TWIN, f"{ETHERNET}[ethernet]\nmac-address=4C:BB:47:00:00:04\n", "", id="another's MAC address"),
        pytest.param(TWIN, f"{ETHERNET}[match]\ninterface-name=eth*;|enp*;\n", "match", id="one of the patterns"),
        pytest.param(
            TWIN, f"{ETHERNET}[match]\ninterface-name=enp*;!enp1s0f1*;\n", "", id="one of the patterns, but excluded"
        ),
        pytest.param(TWIN, f"{ETHERNET}[match]\ninterface-name=!eth*;\n", "match", id="only not excluded"),
        pytest.param(TWIN, f"{ETHERNET}[match]\ninterface-name=&enp*;&*np0;\n", "", id="not all of the patterns"),
        pytest.param(TWIN, f"{ETHERNET}[match]\ninterface-name=&enp1*;&*np1;\n", "match", id="all of the patterns"),
        pytest.param(WIFI, f"{ETHERNET}[match]\ninterface-name=*;\n", "", id="a pattern keeps to its type"),
        pytest.param(
            TWIN,
            "[connection]\nid=v\ntype=vlan\ninterface-name=v10\n[vlan]\nid=10\nparent=enp1s0f1np1\n",
            "member",
            id="VLAN",
        ),
    ],
)
def test_profiles(device: Device, text: str, by: str) -> None:
    found = owners.owners([device], [], [profile("p.nmconnection", text)])[device.name]
    assert [entry["by"] for entry in found] == ([by] if by else [])


@pytest.mark.parametrize(
    ("text", "number"), [("id=x\n[connection]\n", 1), ("[connection]\n\nhunter2\n", 3)], ids=["no group", "no key"]
)
def test_a_keyfile_that_is_none(text: str, number: int) -> None:
    with pytest.raises(ValueError, match=f"^line {number} is neither"):
        profile("p.nmconnection", text)
