"""The modules that write, run as on a node: bad input and check mode change nothing, and the diff is complete."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module

LINKS = [
    {
        "ifname": "enp1s0f1np1",
        "mtu": 9000,
        "flags": ["UP"],
        "addr_info": [{"family": "inet", "local": "10.110.0.1", "prefixlen": 24}],
    },
    {
        "ifname": "enP7s7",
        "mtu": 1500,
        "flags": ["UP"],
        "addr_info": [{"family": "inet", "local": "192.168.1.11", "prefixlen": 24}],
    },
]
NODES = {"spark1": "10.110.0.1", "spark2": "10.110.0.2"}
EXPECTED = "NCCL_DEBUG=INFO\nOMP_NUM_THREADS=1\nVLLM_HOST_IP=10.110.0.1\n"


def host_ip(folder: Path, check: bool = False, **changes: Any) -> dict[str, Any]:
    arguments = {
        "node": "spark1",
        "address": "10.110.0.1",
        "interface": "enp1s0f1np1",
        "ray_node_ip_address": "10.110.0.1",
        "nodes": NODES,
        "environment": {"OMP_NUM_THREADS": 1, "NCCL_DEBUG": "INFO"},
        "path": str(folder / "cluster.env"),
    }
    return run_module(
        "vllm_host_ip", arguments | changes, program(folder / "bin", "ip", f"echo '{json.dumps(LINKS)}'"), check
    )


def test_vllm_host_ip_writes_once(tmp_path: Path) -> None:
    path = tmp_path / "cluster.env"
    first = host_ip(tmp_path)
    assert (first["changed"], path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777) == (True, EXPECTED, 0o644)
    assert first["diff"] == {"before": "", "after": EXPECTED, "before_header": str(path), "after_header": str(path)}
    assert host_ip(tmp_path)["changed"] is False


@pytest.mark.parametrize("damage", ["content", "mode"])
def test_vllm_host_ip_repairs(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cluster.env"
    host_ip(tmp_path)
    if damage == "content":
        path.write_text("VLLM_HOST_IP=10.0.0.1\n", encoding="utf-8")
    else:
        path.chmod(0o600)
    assert host_ip(tmp_path, check=True)["changed"] is True
    assert host_ip(tmp_path)["changed"] is True
    assert (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777) == (EXPECTED, 0o644)


def test_vllm_host_ip_in_check_mode_shows_and_does_not_write(tmp_path: Path) -> None:
    answer = host_ip(tmp_path, check=True)
    assert (answer["changed"], answer["diff"]["after"]) == (True, EXPECTED)
    assert not (tmp_path / "cluster.env").exists()


def test_vllm_host_ip_on_a_fresh_host_in_check_mode_only_warns(tmp_path: Path) -> None:
    answer = host_ip(tmp_path, check=True, interface="enP2p1s0f1np1")
    assert answer["changed"] is True
    assert any("is not on enP2p1s0f1np1" in str(warning) for warning in answer["warnings"])
    assert not (tmp_path / "cluster.env").exists()


def test_vllm_host_ip_lists_all_problems_and_writes_nothing(tmp_path: Path) -> None:
    answer = host_ip(
        tmp_path,
        address="10.110.0.2",
        interface="enP7s7",
        ray_node_ip_address="192.168.1.11",
        environment={"NO-NAME": "x", "LINES": "a\nb"},
    )
    message = answer["msg"]
    assert message.startswith("5 problems found; nothing was changed.")
    for part in (
        "10.110.0.2 is also the address of spark2",
        "the cluster's address of spark1 is 10.110.0.1",
        "Ray uses 192.168.1.11",
        "10.110.0.2 is not on enP7s7",
        "'NO-NAME' is not the name of an environment variable",
        "LINES contains a line break",
    ):
        assert part in message
    assert os.listdir(tmp_path) == ["bin"]  # noqa: PTH208


def test_vllm_host_ip_makes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "cluster.env"
    assert host_ip(tmp_path, path=str(path))["changed"]
    assert "VLLM_HOST_IP=" in path.read_text(encoding="utf-8")


def test_vllm_host_ip_needs_a_place_for_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    answer = host_ip(tmp_path, path=str(tmp_path / "file" / "cluster.env"))
    assert "Not a directory" in answer["msg"]


RAIL = {"interface": "enp1s0f1np1", "address": "10.110.0.1/24", "peers": {"spark2": "10.110.0.2"}}


def test_fabric_probe_sends_whole_packets(tmp_path: Path) -> None:
    folder = program(tmp_path, "ping", f'echo "$*" >> {tmp_path}/asked')
    answer = run_module("fabric_probe", {"rails": [RAIL], "mtu": 9000}, folder)
    assert answer["verified"] == ["enp1s0f1np1 -> spark2 (10.110.0.2): 9000 bytes"]
    words = (tmp_path / "asked").read_text(encoding="utf-8").split()
    # 9000 bytes are 8972 of payload, 8 of ICMP and 20 of IPv4.
    assert (words[words.index("-s") + 1], words[words.index("-M") + 1], words[words.index("-I") + 1]) == (
        "8972",
        "do",
        "enp1s0f1np1",
    )
    assert words[-1] == "10.110.0.2"


def test_fabric_probe_measures_the_round_trip_of_good_paths(tmp_path: Path) -> None:
    """With the output of ping of iputils 20221126."""
    script = """case "$*" in *10.110.1.2) exit 1;; *"-c 10 "*) cat <<'X'
PING 10.110.0.2 (10.110.0.2) from 10.110.0.1 enp1s0f1np1: 56(84) bytes of data.

--- 10.110.0.2 ping statistics ---
10 packets transmitted, 9 received, 10% packet loss, time 1800ms
rtt min/avg/max/mdev = 0.021/0.034/0.101/0.020 ms
X
esac"""
    rails = [RAIL, {"interface": "enP2p1s0f1np1", "address": "10.110.1.1/24", "peers": {"spark2": "10.110.1.2"}}]
    arguments = {"rails": rails, "mtu": 9000, "timeout": 0, "required": False, "samples": 10}
    answer = run_module("fabric_probe", arguments, program(tmp_path, "ping", script))
    times = {"lost_percent": 10.0, "min_ms": 0.021, "avg_ms": 0.034, "max_ms": 0.101}
    assert answer["rtts"] == [{"interface": "enp1s0f1np1", "peer": "spark2", **times}]
    assert [path["interface"] for path in answer["unverified"]] == ["enP2p1s0f1np1"]


def test_fabric_probe_tells_every_path_that_fails(tmp_path: Path) -> None:
    script = 'case "$*" in *10.110.1.2) echo "ping: local error: message too long, mtu=1500" >&2; exit 1;; esac'
    rails = [RAIL, {"interface": "enP2p1s0f1np1", "address": "10.110.0.1/24", "peers": {"spark2": "10.110.1.2"}}]
    answer = run_module("fabric_probe", {"rails": rails, "mtu": 9000, "timeout": 0}, program(tmp_path, "ping", script))
    assert answer["msg"].startswith("1 of 2 paths could not be verified")
    assert (
        "enP2p1s0f1np1 -> spark2 (10.110.1.2): no reply (ping: local error: message too long, mtu=1500)"
        in answer["msg"]
    )


def test_fabric_probe_tells_a_small_mtu_from_a_cut_cable(tmp_path: Path) -> None:
    folder = program(tmp_path, "ping", 'case "$*" in *"-s 548 "*) exit 0;; *) exit 1;; esac')
    answer = run_module("fabric_probe", {"rails": [RAIL], "mtu": 9000, "timeout": 0, "required": False}, folder)
    assert (answer["verified"], answer["changed"]) == ([], False)
    assert answer["unverified"] == [
        {
            "interface": "enp1s0f1np1",
            "peer": "spark2",
            "address": "10.110.0.2",
            "mac": "",
            "reported": "small packets arrive, but not packets of 9000 bytes",
            "small": True,
        }
    ]


@pytest.mark.parametrize(
    ("answered", "said"),
    [("02:00:00:00:00:02", []), ("02:00:00:00:00:99", ["02:00:00:00:00:99 replied instead of 02:00"])],
)
def test_fabric_probe_wants_the_answer_of_the_device_that_has_the_address(
    tmp_path: Path, answered: str, said: list[str]
) -> None:
    """The PCIe functions of a port hear each other's ARP requests, so one may receive the traffic of both rails."""
    folder = program(tmp_path / "bin", "ping", "exit 0")
    program(
        folder,
        "ip",
        f"""[ "$*" = "-json neighbour show" ] && echo '[{{"dst": "10.110.0.2", "dev": "enp1s0f1np1", "lladdr": "{answered}"}}]'
echo "$*" >> {tmp_path}/asked""",
    )
    arguments = {
        "rails": [{**RAIL, "macs": {"spark2": "02:00:00:00:00:02"}}],
        "mtu": 9000,
        "timeout": 0,
        "required": False,
    }
    answer = run_module("fabric_probe", arguments, folder)
    assert [path["reported"][: len(said[0])] for path in answer["unverified"]] == said
    forgotten = "neighbour delete 10.110.0.2 dev enp1s0f1np1" in (tmp_path / "asked").read_text(encoding="utf-8")
    assert forgotten is bool(said), "the probe must delete the kernel's neighbor entry to resolve it again"
