"""The evidence of a node: the lines that count, limits, and items that fail alone."""

from __future__ import annotations

import json
from pathlib import Path

import launches
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import io_evidence, redact

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


def test_a_long_text_is_cut_between_words() -> None:
    assert (
        redact.bounded("a " * redact.MOST_TEXT + "hf_AbCd1234")
        == ("a " * redact.MOST_TEXT)[: redact.MOST_TEXT - 5].rstrip() + " ..."
    )
    assert redact.bounded("x" * 5000) == " ..."
    assert redact.bounded("a\x1b[2J\nb") == "a [2J b"
    assert len(redact.bounded(["x"] * 5000)) == redact.MOST_ENTRIES


def test_files_have_only_the_listed_lines(tmp_path: Path) -> None:
    (tmp_path / "dgx-release").write_text(DGX, encoding="utf-8")
    (tmp_path / "os-release").write_text('PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\n', encoding="utf-8")
    _files, kept = io_evidence._FILES["release"]
    assert io_evidence._file_lines([f"{tmp_path}/{name}" for name in ("dgx-release", "none", "os-release")], kept) == [
        'DGX_NAME="DGX Spark"',
        'DGX_SWBUILD_VERSION="7.6.1"',
        'PRETTY_NAME="Ubuntu 24.04.3 LTS"',
    ]


def test_files_have_their_permissions(tmp_path: Path) -> None:
    for name, mode in (("b.yaml", 0o600), ("a.yaml", 0o644), ("c.txt", 0o600)):
        launches.put(tmp_path, f"/{name}", "", mode)
    assert list(io_evidence._modes([f"{tmp_path}/*.yaml"])) == [f"{tmp_path}/a.yaml 0644", f"{tmp_path}/b.yaml 0600"]


def test_each_item_fails_alone(tmp_path: Path) -> None:
    for name in ("nmcli", "networkctl", "systemctl", "ip"):
        program(tmp_path, name, "echo broken >&2; exit 3")
    program(tmp_path, "dpkg", "exit 4")
    program(tmp_path, "dpkg-query", "printf '%s\\n' \"$3\" 'installed\tg++\t13' 'not-installed\tninja-build\t'; exit 1")
    program(tmp_path, "lslocks", "printf '%s\\n' 'apt /var/lib/dpkg/lock-frontend' 'apt-get /tmp/apt/lock'")
    program(tmp_path, "nvidia-smi", f"cat <<'END'\n{SMI}\nEND")
    answer = run_module("field_evidence", {"install_dir": str(tmp_path / "none")}, tmp_path)
    found, unread = answer["evidence"], answer["unread"]
    assert {name for name, value in found.items() if value is None} == set(unread)
    assert {"profiles", "networkd", "routes", "updates", "failed_units", "dpkg"} <= set(unread)
    assert (unread["profiles"], unread["dpkg"]) == ("nmcli: broken", "dpkg: exit status 4")
    assert found["nvidia_smi"][:2] == ["==============NVSMI LOG==============", "Timestamp : Wed Nov 25 04:26:01 2026"]
    assert found["packages"] == ["installed g++ 13"] and found["locks"] == ["apt /var/lib/dpkg/lock-frontend"]
    assert found["release"] and found["command_line"] and found["package_lists"]
    assert [line.split()[0] for line in found["programs"]][:2] == ["ninja", "nvcc"]
    assert found["netplan_accepted"] == "netplan is not installed"
    assert f"{tmp_path}/none/runtime/current/bin/ninja not found" in found["programs"]
    assert found["toolkit"].keys() == {"home", "release", "architectures", "reason", "host_compiler", "places"}


def test_only_known_lines_of_a_log_leave_the_node(tmp_path: Path) -> None:
    log = [
        "ValueError: the merger of acme",
        "a prompt about lisa",
        "CUDA out of memory for lisa",
        "gb10-gates wait: n2",
    ]
    program(tmp_path, "systemctl", "exit 0")
    program(tmp_path, "journalctl", f"cat <<'END'\n{chr(10).join(log)}\nEND")
    answer = run_module("field_evidence", {"install_dir": str(tmp_path)}, tmp_path)
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
