"""The evidence of a node: each parser with the output of its tool, limits, and items that fail alone."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import evidence

DGX = 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.6.1"\nDGX_SERIAL_NUMBER="1792923004567"\n'
SMI = """
==============NVSMI LOG==============

Timestamp                                 : Wed Nov 25 04:26:01 2026
Driver Version                            : 580.142
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 0000000F:01:00.0
    FB Memory Usage
        Total                             : N/A
    Clocks
        SM                                : 2405 MHz
    Serial Number                         : 1792923004567
"""


def test_the_release_has_no_serial_number() -> None:
    found = evidence.release(DGX, 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\n', "Linux version 6.17.0\n")
    assert found == ["DGX_NAME=DGX Spark", "DGX_SWBUILD_VERSION=7.6.1", "Ubuntu 24.04.3 LTS", "Linux version 6.17.0"]


def test_memory_clocks_and_power_of_nvidia_smi_are_kept() -> None:
    assert evidence.nvidia_smi(SMI) == [
        "Driver Version: 580.142",
        "CUDA Version: 13.0",
        "FB Memory Usage / Total: N/A",
        "Clocks / SM: 2405 MHz",
    ]


def test_files_and_profiles() -> None:
    assert evidence.netplan([("/etc/netplan", "50-acme.yaml", 0o600)]) == ["/etc/netplan/50-acme.yaml 0600"]
    text = "Acme\\: Guest:802-11-wireless:wlP9s9:yes:activated\nWired connection 1:802-3-ethernet::yes:\n"
    assert evidence.profiles(text) == [
        "Acme: Guest 802-11-wireless device=wlP9s9 autoconnect=yes activated",
        "Wired connection 1 802-3-ethernet device=none autoconnect=yes inactive",
    ]


def test_netplan_is_judged_by_its_generator() -> None:
    assert evidence.accepted("") == "yes"
    assert (
        evidence.accepted("netplan rejects it: /etc/netplan/90.yaml:3:5: Error")
        == "no: netplan rejects it: /etc/netplan/90.yaml:3:5: Error"
    )
    assert "Acme" not in evidence.accepted("/etc/netplan has changes that were never applied (10-netplan-Acme.network)")


def test_the_holder_of_a_lock_is_found() -> None:
    # The second line is a process that waits.
    rows = (
        "1: POSIX ADVISORY WRITE 812 fd:01:131",
        "1: -> POSIX ADVISORY WRITE 900 fd:01:131",
        "2: FLOCK ADVISORY WRITE 7 fd:01:9",
    )
    locks = "".join(f"{row} 0 EOF\n" for row in rows)
    assert evidence.lock_key(0xFD01, 131) == "fd:01:131"
    assert evidence.holders(locks, {"fd:01:131": "/var/lib/dpkg/lock-frontend"}) == [
        (812, "/var/lib/dpkg/lock-frontend")
    ]


def test_tables() -> None:
    links = "IDX LINK\n2 enp1s0f1np1 ether routable configured\n"
    assert evidence.columns(links, (1, 2, 3, 4), str.isdecimal) == ["enp1s0f1np1 ether routable configured"]
    assert evidence.columns("● gb10-vllm.service loaded failed failed vLLM\n", (0,)) == ["gb10-vllm.service"]
    routes = "default via 192.168.1.1 dev wlP9s9 proto dhcp\ndefault dev enP7s7 scope link\n"
    assert evidence.routes(routes) == ["default by wlP9s9", "default by enP7s7"]
    assert evidence.packages("ii  g++ 4:13.2\nrc  docker.io 1\nun  ninja-build\n") == ["g++ 4:13.2"]


def test_a_long_text_is_cut_between_words() -> None:
    assert (
        evidence.bounded("a " * evidence.MOST_TEXT + "hf_AbCd1234")
        == ("a " * evidence.MOST_TEXT)[: evidence.MOST_TEXT - 5].rstrip() + " ..."
    )
    assert evidence.bounded("x" * 5000) == " ..."
    assert evidence.bounded("a\x1b[2J\nb") == "a [2J b"
    assert len(evidence.bounded(["x"] * 5000)) == evidence.MOST_ENTRIES


@given(st.text(max_size=300))
def test_no_output_breaks_a_parser(text: str) -> None:
    for parse in (
        evidence.nvidia_smi,
        evidence.profiles,
        evidence.routes,
        evidence.packages,
    ):
        parse(text)
    evidence.release(text, text, text)
    evidence.holders(text, {"fd:01:131": "x"})
    evidence.columns(text, (0, 3))


def test_each_item_fails_alone(tmp_path: Path) -> None:
    for name in ("nmcli", "networkctl", "systemctl", "ip"):
        program(tmp_path, name, "echo broken >&2; exit 3")
    program(tmp_path, "nvidia-smi", f"cat <<'END'\n{SMI}\nEND")
    answer = run_module("field_report_info", {"install_dir": str(tmp_path / "none")}, tmp_path)
    assert list(answer["evidence"]) == list(evidence.ITEMS)
    assert answer["unread"]["profiles"] == "nmcli: broken"
    assert {name for name, value in answer["evidence"].items() if value is None} == set(answer["unread"])
    assert {"networkd", "routes", "failed_units"} <= set(answer["unread"])
    assert answer["evidence"]["nvidia_smi"][0] == "Driver Version: 580.142"
    assert answer["evidence"]["release"] and answer["evidence"]["apt"]


def test_only_known_lines_of_a_log_leave_the_node(tmp_path: Path) -> None:
    log = [
        "ValueError: the merger of acme",
        "a prompt about lisa",
        "CUDA out of memory for lisa",
        "gb10-gates wait: n2",
    ]
    program(tmp_path, "systemctl", "exit 0")
    program(tmp_path, "journalctl", f"cat <<'END'\n{chr(10).join(log)}\nEND")
    answer = run_module("field_report_info", {"install_dir": str(tmp_path)}, tmp_path)
    shown = [
        "ValueError: REDACTED",
        "gpu-out-of-memory: CUDA out of memory REDACTED",
        "gb10-gates wait: n2",
        "lines without a known symptom, left out: 1",
    ]
    assert answer["evidence"]["logs"] == [
        f"{unit}: {line}" for unit in ("gb10-ray.service", "gb10-vllm.service") for line in shown
    ]
    assert "lisa" not in json.dumps(answer)
