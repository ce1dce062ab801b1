"""netconsole: its target in a folder that stands for the kernel's, and a neighbor that does not answer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import io_netconsole, netconsole

ARP = """IP address       HW type     Flags       HW address            Mask     Device
10.110.0.2       0x1         0x2         02:00:00:00:00:02     *        enp1s0f1np1
10.110.0.3       0x1         0x0         00:00:00:00:00:00     *        enp1s0f1np1
10.110.0.2       0x1         0x2         02:00:00:00:00:99     *        eth0
"""
TARGET = {"name": "spark2", "interface": "enp1s0f1np1", "from": "10.110.0.1", "address": "10.110.0.2", "port": 8476}


@pytest.mark.parametrize(
    ("interface", "address", "expected"),
    [
        ("enp1s0f1np1", "10.110.0.2", "02:00:00:00:00:02"),
        ("eth0", "10.110.0.2", "02:00:00:00:00:99"),
        ("enp1s0f1np1", "10.110.0.3", ""),
        ("enp1s0f1np1", "10.110.0.4", ""),
    ],
)
def test_the_address_of_a_neighbor_is_that_of_the_interface(interface: str, address: str, expected: str) -> None:
    assert netconsole.mac(ARP, interface, address) == expected


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the kernel's."""
    folder = tmp_path / "netconsole"
    folder.mkdir()
    (tmp_path / "settings.json").write_text(json.dumps({"peer": TARGET}), encoding="utf-8")
    monkeypatch.setattr(netconsole, "FOLDER", str(folder))
    monkeypatch.setattr(netconsole, "TARGET", str(folder / "gb10"))
    monkeypatch.setattr(io_netconsole, "neighbor", lambda *_arguments: "02:00:00:00:00:02")
    # The kernel removes the files of a target with its folder.
    remove = os.rmdir
    monkeypatch.setattr(os, "rmdir", lambda path: ([file.unlink() for file in Path(path).iterdir()], remove(path)))
    return folder


def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str = "on") -> int:
    monkeypatch.setattr(sys, "argv", ["gb10-netconsole", action, str(tmp_path / "settings.json")])
    return io_netconsole.main()


def test_the_target_is_complete_before_it_is_enabled(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(tmp_path, monkeypatch) == 0
    found = {file.name: file.read_text(encoding="utf-8") for file in (kernel / "gb10").iterdir()}
    assert found == netconsole.attributes(TARGET, "02:00:00:00:00:02")
    assert list(netconsole.attributes(TARGET, ""))[-1] == "enabled"
    assert (found["dev_name"], found["remote_ip"], found["remote_port"]) == ("enp1s0f1np1", "10.110.0.2", "8476")


def test_the_target_is_removed_when_the_unit_stops(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(tmp_path, monkeypatch, "off") == 0
    assert start(tmp_path, monkeypatch) == 0
    assert start(tmp_path, monkeypatch, "off") == 0
    assert list(kernel.iterdir()) == []


def test_a_kernel_without_netconsole_is_no_error(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.rmdir()
    assert start(tmp_path, monkeypatch) == 0


def test_without_the_neighbor_systemd_tries_again(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(io_netconsole, "neighbor", lambda *_arguments: "")
    assert start(tmp_path, monkeypatch) == 1
    assert list(kernel.iterdir()) == []
    assert "spark2 does not answer at 10.110.0.2 on enp1s0f1np1" in capsys.readouterr().out


def test_without_settings_nothing_is_sent(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.json").unlink()
    assert start(tmp_path, monkeypatch) == 1
    assert "settings.json does not exist" in capsys.readouterr().out
    assert list(kernel.iterdir()) == []


def test_a_target_that_the_kernel_refuses_is_removed(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(netconsole, "attributes", lambda *_given: {"none/dev_name": "enp1s0f1np1"})
    assert start(tmp_path, monkeypatch) == 1
    assert "none/dev_name refuses 'enp1s0f1np1': " in capsys.readouterr().out
    assert list(kernel.iterdir()) == []


@pytest.mark.parametrize(("silent", "found"), [(0, "02:00:00:00:00:02"), (3, "02:00:00:00:00:02"), (1000, "")])
def test_the_neighbor_is_asked_until_it_answers(monkeypatch: pytest.MonkeyPatch, silent: int, found: str) -> None:
    clock = [0.0]
    table = ARP.replace("10.110.0.2", "127.0.0.1").replace("enp1s0f1np1", "lo")
    monkeypatch.setattr(io_netconsole.time, "sleep", lambda seconds: clock.append(clock[-1] + seconds))
    monkeypatch.setattr(io_netconsole.io_file, "read", lambda _path: table if len(clock) > silent else "")
    assert io_netconsole.neighbor("lo", "127.0.0.1", 9) == found
    assert clock[-1] < 10, "systemd tries again"
    assert len(clock) == silent + 1 or not found
