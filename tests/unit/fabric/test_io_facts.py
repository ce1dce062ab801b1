"""fabric_info on simulated machines (tests/unit/data/hosts), run as on a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from recorded_hosts import HOSTS, plant
from repository import ROOT
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts

CX7, SYNC = "/etc/netplan/40-cx7.yaml", "/etc/netplan/99-nvidia-sync-cluster.yaml"
KEYFILES = "NetworkManager/system-connections"
NM_WIFI = "NM-4f1c2c5e-7d53-4a7e-9a3c-5a2b8f0d6e11"


@cache
def answer(host: str) -> dict[str, Any]:
    with TemporaryDirectory() as root:
        return run_module("fabric_info", {"root": str(plant(host, Path(root)))})


def owner(file: str, name: str, kind: str, by: str) -> dict[str, str]:
    return {"file": file, "id": name, "kind": kind, "by": by}


def test_a_twin_in_full() -> None:
    found = answer("spark_pair")
    assert found["interfaces"]["enP2p1s0f1np1"] == {
        "mtu": 1500,
        "mac": "4c:bb:47:0a:00:04",
        "up": True,
        "carrier": True,
        "addresses": ["192.168.101.10/24"],
        "link_local": "fe80::4ebb:47ff:fe0a:4",
        "driver": "mlx5_core",
        "speed": 200000,
        "kind": "physical",
        "pci": {
            "address": "0002:01:00.1",
            "width": 4,
            "max_width": 4,
            "speed": "32.0 GT/s PCIe",
            "max_speed": "32.0 GT/s PCIe",
        },
        "hca": "roceP2p1s0f1",
        "owners": [owner(CX7, "enP2p1s0f1np1", "ethernets", "name")],
    }
    fe80, ipv4 = "fe80:0000:0000:0000:4ebb:47ff:fe0a:0004", "0000:0000:0000:0000:0000:ffff:c0a8:650a"
    assert found["rdma"]["roceP2p1s0f1"] == {
        "interface": "enP2p1s0f1np1",
        "state": "ACTIVE",
        "link_layer": "Ethernet",
        "gids": [
            {"index": 0, "gid": fe80, "type": "RoCE v1", "interface": "enP2p1s0f1np1"},
            {"index": 1, "gid": fe80, "type": "RoCE v2", "interface": "enP2p1s0f1np1"},
            {"index": 2, "gid": ipv4, "type": "RoCE v1", "interface": "enP2p1s0f1np1"},
            {"index": 3, "gid": ipv4, "type": "RoCE v2", "interface": "enP2p1s0f1np1"},
        ],
    }
    assert (found["netplan"], found["unreadable"], found["changed"]) == ([CX7], [], False)


@pytest.mark.parametrize(
    ("host", "interface", "expected"),
    [
        ("spark_pair", "lo", {"kind": "virtual", "driver": "", "speed": None, "pci": None, "hca": "", "owners": []}),
        (
            "spark_pair",
            "enp1s0f0np0",
            {"carrier": False, "speed": None, "hca": "rocep1s0f0", "link_local": "", "owners": []},
        ),
        ("spark_bond", "bond0", {"kind": "virtual", "pci": None, "speed": 400000, "addresses": ["10.30.0.11/24"]}),
        ("thor", "mgbe0_0", {"kind": "physical", "driver": "nvethernet", "speed": 25000, "pci": None, "hca": ""}),
        ("thor", "docker0", {"kind": "virtual", "driver": "", "speed": None}),
    ],
)
def test_hardware(host: str, interface: str, expected: dict[str, Any]) -> None:
    assert answer(host)["interfaces"][interface] | expected == answer(host)["interfaces"][interface]


@pytest.mark.parametrize(
    ("host", "interface", "expected"),
    [
        pytest.param(
            "spark_sync",
            "enp1s0f1np1",
            [
                owner(CX7, "enp1s0f1np1", "ethernets", "name"),
                owner(SYNC, "enp1s0f1np1", "ethernets", "name"),
                owner(f"/run/{KEYFILES}/cx7 by hand.nmconnection", "cx7 by hand", "NetworkManager", "name"),
            ],
            id="two netplan files and a profile, but not those that netplan and NetworkManager made up",
        ),
        pytest.param(
            "spark_sync",
            "wlP9s9",
            [owner(f"/etc/{KEYFILES}/Office.nmconnection", "Office", "NetworkManager", "name")],
            id="this Wi-Fi, but not NetworkManager's file for any",
        ),
        pytest.param(
            "spark_sync",
            "enP7s7",
            [owner(f"/run/{KEYFILES}/Desk.nmconnection", "Desk", "NetworkManager", "match")],
            id="a profile by MAC address",
        ),
        pytest.param(
            "spark_bond",
            "enP2p1s0f1np1",
            [
                owner("/etc/netplan/50-bond.yaml", "cx7", "ethernets", "match"),
                owner("/etc/netplan/50-bond.yaml", "second", "ethernets", "match"),
                owner("/etc/netplan/50-bond.yaml", "bond0", "bonds", "member"),
                owner("/etc/netplan/99-dgx-cluster.yaml", "cx7", "ethernets", "match"),
            ],
            id="wildcard, permanent MAC address, bond, and a file that amends the wildcard's definition",
        ),
        pytest.param(
            "spark_bond",
            "bond0",
            [
                owner("/etc/netplan/50-bond.yaml", "bond0", "bonds", "name"),
                owner("/etc/netplan/50-bond.yaml", "storage", "vlans", "member"),
            ],
            id="a bond is what carries a VLAN",
        ),
        pytest.param("spark_bond", "enP7s7", [], id="a shadowed file and an unreadable one own nothing"),
        pytest.param(
            "thor",
            "mgbe0_0",
            [
                owner(f"/etc/{KEYFILES}/QSFP", "QSFP", "NetworkManager", "match"),
                owner(f"/etc/{KEYFILES}/any.nmconnection", "any", "NetworkManager", "match"),
            ],
            id="NetworkManager's patterns, and a profile for any cable",
        ),
        pytest.param(
            "thor",
            "docker0",
            [owner(f"/etc/{KEYFILES}/bridge.nmconnection", "bridge", "NetworkManager", "name")],
            id="a bridge",
        ),
    ],
)
def test_owners(host: str, interface: str, expected: list[dict[str, str]]) -> None:
    assert answer(host)["interfaces"][interface]["owners"] == expected


@pytest.mark.parametrize(
    ("host", "netplan", "unreadable"),
    [
        ("spark_ring", ["/etc/netplan/98-spark-vllm-docker.yaml"], []),
        ("spark_sync", ["/etc/netplan/01-network-manager-all.yaml", CX7, f"/etc/netplan/90-{NM_WIFI}.yaml", SYNC], []),
        (
            "spark_bond",
            [
                "/lib/netplan/00-network-manager-all.yaml",
                "/etc/netplan/50-bond.yaml",
                "/etc/netplan/60-old.yaml",
                "/etc/netplan/99-dgx-cluster.yaml",
            ],
            [{"file": "/etc/netplan/60-old.yaml", "reason": "it is not YAML, line 2"}],
        ),
        (
            "thor",
            [],
            [
                {
                    "file": f"/etc/{KEYFILES}/broken.nmconnection",
                    "reason": "line 3 is neither a [group] nor key=value in one",
                }
            ],
        ),
    ],
)
def test_files(host: str, netplan: list[str], unreadable: list[dict[str, str]]) -> None:
    assert (answer(host)["netplan"], answer(host)["unreadable"]) == (netplan, unreadable)


@pytest.mark.parametrize("host", HOSTS)
def test_no_secret_leaves_the_node(host: str, tmp_path: Path) -> None:
    assert "hunter2" not in json.dumps(answer(host))
    # The parsers' messages quote a password that is the syntax error itself.
    root = plant(host, tmp_path)
    (root / "etc/netplan").mkdir(parents=True, exist_ok=True)
    for number, value in enumerate(
        ["*hunter2", "[hunter2", "@hunter2", '"hunter2', "hunter2: {hunter2", "hunter2\n\thunter2"]
    ):
        (root / f"etc/netplan/95-{number}.yaml").write_text(f"network: {{}}\npassword: {value}\n", encoding="utf-8")
    found = run_module("fabric_info", {"root": str(root)})
    assert {f"/etc/netplan/95-{number}.yaml" for number in range(6)} <= {entry["file"] for entry in found["unreadable"]}
    assert "hunter2" not in json.dumps(found)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    root = plant("spark_pair", tmp_path)
    (root / "etc/netplan/50-latin.yaml").write_bytes(b"network: {} # \xe9\n")
    (root / "etc/netplan/60-folder.yaml").mkdir()
    (root / "etc/netplan/70-text.yaml").write_text("just text\n", encoding="utf-8")
    (root / "etc/NetworkManager").mkdir()
    (root / "etc/NetworkManager/system-connections").write_text("", encoding="utf-8")
    # Reading a folder raises OSError, like a free slot (EINVAL).
    (root / "sys/class/infiniband/rocep1s0f1/ports/1/gids/10").mkdir()
    found = run_module("fabric_info", {"root": str(root)})
    assert [entry["index"] for entry in found["rdma"]["rocep1s0f1"]["gids"]] == [0, 1, 2, 3], "the slot is free"
    assert [(entry["file"], entry["reason"]) for entry in found["unreadable"]] == [
        (f"/etc/{KEYFILES}", "Not a directory"),
        ("/etc/netplan/50-latin.yaml", "it is not UTF-8"),
        ("/etc/netplan/60-folder.yaml", "Is a directory"),
        ("/etc/netplan/70-text.yaml", "the document is not a mapping"),
    ]
    assert found["interfaces"]["enp1s0f1np1"]["owners"], "the files that can be read still count"


def test_an_rdma_device_of_software_names_its_interface(tmp_path: Path) -> None:
    root = plant("spark_pair", tmp_path)
    device = root / "sys/class/infiniband/rocep1s0f1"
    (device / "device").unlink()
    # As the kernel's rdma_rxe.
    (device / "parent").write_text("enp1s0f1np1\n", encoding="utf-8")
    found = run_module("fabric_info", {"root": str(root)})
    assert found["rdma"]["rocep1s0f1"]["interface"] == "enp1s0f1np1"
    assert found["interfaces"]["enp1s0f1np1"]["hca"] == "rocep1s0f1"


def test_a_mac_address_is_no_number(tmp_path: Path) -> None:
    root = plant("spark_pair", tmp_path)
    # In YAML 1.1, decimal digits with colons are a base-60 number.
    links = json.loads((root / "ip-address.json").read_text(encoding="utf-8"))
    links[1]["address"] = "52:54:00:12:34:56"
    (root / "ip-address.json").write_text(json.dumps(links), encoding="utf-8")
    text = "network: {ethernets: {lan: {match: {macaddress: 52:54:00:12:34:56}}}}\n--- # netplan reads no further\n{"
    (root / "etc/netplan/50-lan.yaml").write_text(text, encoding="utf-8")
    found = run_module("fabric_info", {"root": str(root)})
    assert found["interfaces"]["enP7s7"]["owners"] == [owner("/etc/netplan/50-lan.yaml", "lan", "ethernets", "match")]
    assert found["unreadable"] == []


def test_a_recorded_machine_is_asked_nothing(tmp_path: Path) -> None:
    root = plant("thor", tmp_path / "root")
    found = run_module("fabric_info", {"root": str(root)}, program(tmp_path / "bin", "ip", "echo 'asked' >&2; exit 1"))
    assert "mgbe0_0" in found["interfaces"]
    assert "asked" in run_module("fabric_info", {}, tmp_path / "bin")["msg"]
    assert str(tmp_path / "ip-address.json") in run_module("fabric_info", {"root": str(tmp_path)})["msg"]


def test_this_machine(tmp_path: Path) -> None:
    links = [
        {
            "ifname": "lo",
            "mtu": 65536,
            "flags": ["UP", "LOWER_UP"],
            "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}],
        }
    ]
    found = run_module("fabric_info", {}, program(tmp_path, "ip", f"echo '{json.dumps(links)}'"))
    assert (found["interfaces"]["lo"]["kind"], found["interfaces"]["lo"]["addresses"]) == ("virtual", ["127.0.0.1/8"])


@pytest.mark.parametrize("module", ["fabric_info", "node_info"])
def test_without_yaml_a_module_says_what_to_install(module: str, tmp_path: Path) -> None:
    root = plant("spark_pair", tmp_path / "root")
    path = ROOT / ".collections/ansible_collections/gb10/cluster/plugins/modules" / f"{module}.py"
    script = f"""
import runpy, sys
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as io_fabric
sys.modules["yaml"] = None
read = io_fabric.read
io_fabric.read = lambda run, root="": read(run, {str(root)!r})
runpy.run_path({str(path)!r}, run_name="__main__")
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {}}),
        env={"PYTHONPATH": str(ROOT / ".collections"), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "python3-yaml" in json.loads(result.stdout)["msg"]


def test_without_netplan_no_yaml_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert (
        fabric_io_facts.read(lambda argv: (127, "", f"{argv[0]} must not run"), str(plant("thor", tmp_path)))["netplan"]
        == []
    )
