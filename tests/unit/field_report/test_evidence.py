"""The evidence of a node: each parser with the output of its tool, limits, and items that fail alone."""

from __future__ import annotations

import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import evidence, io_evidence

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


def test_only_known_options_of_the_kernel_keep_their_values() -> None:
    text = "BOOT_IMAGE=/boot/vmlinuz root=UUID=abc ro iommu.passthrough=1 init_on_alloc=0 ip=192.168.1.2 quiet"
    assert evidence.command_line(text) == [
        "BOOT_IMAGE=REDACTED",
        "root=REDACTED",
        "ro",
        "iommu.passthrough=1",
        "init_on_alloc=0",
        "ip=REDACTED",
        "quiet",
    ]


def test_memory_clocks_and_power_of_nvidia_smi_are_kept() -> None:
    assert evidence.nvidia_smi(SMI) == [
        "Driver Version: 580.142",
        "CUDA Version: 13.0",
        "FB Memory Usage / Total: N/A",
        "Clocks / SM: 2405 MHz",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("01-network-manager-all.yaml", "01-network-manager-all.yaml"),
        ("90-NM-6b1f9c0e-1111-2222-3333-444455556666.yaml", "90-NM-UUID.yaml"),
        ("90-NM-6b1f9c0e-1111-2222-3333-444455556666-Acme Guest.yaml", "90-NM-UUID.yaml"),
        ("50-acme.yaml", "50-NAME.yaml"),
        ("acme", "NAME"),
    ],
)
def test_a_chosen_file_name_is_not_shown(name: str, shown: str) -> None:
    assert evidence.netplan([("/etc/netplan", name, 0o600)]) == [f"/etc/netplan/{shown} 0600"]


def test_profiles_have_no_name_of_a_network() -> None:
    text = "Acme\\: Guest:802-11-wireless:wlP9s9:yes:activated\nWired connection 1:802-3-ethernet::yes:\n"
    assert evidence.profiles(text) == [
        "NAME 802-11-wireless device=wlP9s9 autoconnect=yes activated",
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
        evidence.command_line,
        evidence.nvidia_smi,
        evidence.profiles,
        evidence.routes,
        evidence.packages,
        evidence.file_name,
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
    assert answer["private"]["MODEL"] == []


def test_private_names_leave_the_node_apart_from_the_evidence(tmp_path: Path) -> None:
    program(
        tmp_path,
        "nmcli",
        'case "$*" in *NAME,TYPE*) echo "Acme Guest:wifi:wlP9s9:yes:activated";; *) echo "Acme Guest";; esac',
    )
    (tmp_path / "models" / "acme--secret").mkdir(parents=True)
    answer = run_module("field_report_info", {"install_dir": str(tmp_path)}, tmp_path)
    assert answer["private"]["NAME"] == ["Acme Guest"]
    assert answer["private"]["MODEL"] == ["acme--secret", "acme/secret", "secret"]
    assert "Acme" not in str(answer["evidence"]) and "secret" not in str(answer["evidence"])


def test_servers_of_mounts_and_names_of_hosts_are_private(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/mounts": (
            "nas01:/export /mnt nfs rw 0 0\n//files.acme/share /smb cifs rw 0 0\n/dev/sda1 / ext4 rw 0 0\nnone /x "
            "tmpfs rw 0 0\n"
        ),
        "/etc/hosts": "127.0.0.1 localhost\n192.168.1.5 printer printer.lan # acme\n::1 ip6-localhost\n",
    }
    monkeypatch.setattr(io_evidence, "_file", lambda path: files.get(path, ""))
    # Of the users, only the one of a person: that of DGX OS is the same on every Spark.
    users = [SimpleNamespace(pw_name=name, pw_uid=uid) for name, uid in (("root", 0), ("nvidia", 1000), ("lisa", 1001))]
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    found = io_evidence.private(lambda _argv: (127, "", ""), "/nonexistent")
    assert found["HOST"] == ["files.acme", "nas01", "printer", "printer.lan"]
    assert found["USER"] == ["lisa"]
