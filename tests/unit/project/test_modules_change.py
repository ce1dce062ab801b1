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
        "nodes": NODES,
        "environment": {"OMP_NUM_THREADS": 1, "NCCL_DEBUG": "INFO"},
        "path": str(folder / "cluster.env"),
    }
    return run_module(
        "vllm_host_ip", arguments | changes, program(folder / "bin", "ip", f"echo '{json.dumps(LINKS)}'"), check
    )


def test_vllm_host_ip_writes_once_with_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "cluster.env"
    shown = host_ip(tmp_path, check=True, path=str(path))
    assert shown["changed"] and not path.parent.exists()
    first = host_ip(tmp_path, path=str(path))
    assert first["changed"] and first["diff"] == shown["diff"]
    assert first["diff"] == {"before": "", "after": EXPECTED, "before_header": str(path), "after_header": str(path)}
    assert (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777) == (EXPECTED, 0o644)
    assert host_ip(tmp_path, path=str(path))["changed"] is False


@pytest.mark.parametrize(("content", "mode"), [("VLLM_HOST_IP=10.0.0.1\n", 0o644), (EXPECTED, 0o600)])
def test_vllm_host_ip_repairs(tmp_path: Path, content: str, mode: int) -> None:
    path = tmp_path / "cluster.env"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    assert [host_ip(tmp_path, check)["changed"] for check in (True, False, False)] == [True, True, False]
    assert (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777) == (EXPECTED, 0o644)


def test_vllm_host_ip_on_a_fresh_host_in_check_mode_only_warns(tmp_path: Path) -> None:
    answer = host_ip(tmp_path, check=True, interface="enP2p1s0f1np1")
    assert answer["changed"] and "is not on enP2p1s0f1np1" in str(answer["warnings"])
    assert not (tmp_path / "cluster.env").exists()


def test_vllm_host_ip_lists_all_problems_and_writes_nothing(tmp_path: Path) -> None:
    answer = host_ip(
        tmp_path,
        address="10.110.0.2",
        interface="enP7s7",
        nodes={**NODES, "spark3": "10.110.0.3"},
        others={
            "spark1": {"enp1s0f1np1": {"addresses": ["10.110.0.2/24"]}},
            "spark3": {"enp1s0f0np0": {"addresses": ["10.110.0.3/24", "10.110.0.2/24"]}},
        },
    )
    message = answer["msg"]
    assert message.startswith("3 problems found; nothing was changed.")
    for part in (
        "10.110.0.2 is also the address of spark2",
        "spark3 has 10.110.0.2 on enp1s0f0np0 now",
        "10.110.0.2 is not on enP7s7",
    ):
        assert part in message
    refused = host_ip(tmp_path, environment={"NO-NAME": "x", "LINES": "a\nb"})["msg"]
    assert (
        "'NO-NAME' is not the name of an environment variable" in refused and "LINES contains a line break" in refused
    )
    assert os.listdir(tmp_path) == ["bin"]  # noqa: PTH208


def test_vllm_host_ip_needs_a_place_for_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    answer = host_ip(tmp_path, path=str(tmp_path / "file" / "cluster.env"))
    assert "Not a directory" in answer["msg"]


def test_fabric_probe_lists_the_verified_and_the_other_paths(tmp_path: Path) -> None:
    """With the output of ping of iputils 20221126."""
    script = """case "$*" in *10.110.1.2) echo "ping: local error: message too long, mtu=1500" >&2; exit 1;; *"-c 10 "*) cat <<'X'
PING 10.110.0.2 (10.110.0.2) from 10.110.0.1 enp1s0f1np1: 56(84) bytes of data.

--- 10.110.0.2 ping statistics ---
10 packets transmitted, 9 received, 10% packet loss, time 1800ms
rtt min/avg/max/mdev = 0.021/0.034/0.101/0.020 ms
X
esac"""
    folder = program(tmp_path, "ping", script)
    rails = [
        {"interface": "enp1s0f1np1", "address": "10.110.0.1/24", "peers": {"spark2": "10.110.0.2"}},
        {"interface": "enP2p1s0f1np1", "address": "10.110.1.1/24", "peers": {"spark2": "10.110.1.2"}},
    ]
    given = {"rails": rails, "mtu": 9000, "timeout": 0, "samples": 10}
    answer = run_module("fabric_probe", {**given, "required": False}, folder)
    assert (answer["changed"], answer["verified"]) == (False, ["enp1s0f1np1 -> spark2 (10.110.0.2): 9000 bytes"])
    times = {"lost_percent": 10.0, "min_ms": 0.021, "avg_ms": 0.034, "max_ms": 0.101}
    assert answer["rtts"] == [{"interface": "enp1s0f1np1", "peer": "spark2", **times}]
    reason = "no reply (ping: local error: message too long, mtu=1500)"
    path = {"interface": "enP2p1s0f1np1", "peer": "spark2", "address": "10.110.1.2", "mac": ""}
    assert answer["unverified"] == [{**path, "reported": reason, "small": False}]
    failed = run_module("fabric_probe", given, folder)["msg"]
    assert failed.startswith("1 of 2 paths could not be verified")
    assert f"enP2p1s0f1np1 -> spark2 (10.110.1.2): {reason}" in failed
