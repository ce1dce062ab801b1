"""Read and change a host below a folder, with a recorded systemctl; and the module and the role in check mode."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from run_module import program, run_module
from run_playbook import run as run_playbook

from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import io_host, plan
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import Protection

ALL = Protection(gpu_clock=2100, swappiness=0, hardware_watchdog=60, panic=10)
SHOWN = """LoadState=loaded
UnitFileState={enabled}
ActiveState={active}
SubState=exited
Result=success
MainPID=0
NRestarts=0
ExecMainStatus=0
InvocationID=
ExecMainStartTimestampMonotonic=0
Environment="""


class Systemd:
    """A systemd that records its commands; its unit starts, or fails."""

    def __init__(self, root: Path, works: bool = True) -> None:
        self.root, self.works, self.active, self.calls = root, works, "inactive", []
        self.seconds: tuple[int, int] = (0, 600)

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv[1])
        if argv[0] == "journalctl":
            return 0, "Setting locked GPU clocks is not supported\n", ""
        if argv[0] == "busctl":
            return 0, "".join(f"t {second * 10**6}\n" for second in self.seconds), ""
        if argv[1] == "show":
            enabled = "enabled" if self.active == "active" else "disabled"
            return 0, SHOWN.format(enabled=enabled, active=self.active), ""
        if argv[1] == "daemon-reexec":
            text = (self.root / plan.MANAGER_FILE[1:]).read_text(encoding="utf-8")
            self.seconds = (60 if "RuntimeWatchdogSec=60" in text else 0, 600)
        if argv[1] == "restart" and not self.works:
            self.active = "failed"
            return 1, "", "Job for gb10-gpu-clock.service failed."
        # A failed unit is stopped, and stays failed.
        after = {"restart": "active", "reset-failed": "inactive"}
        after |= {"disable": "inactive"} if self.active == "active" else {}
        self.active = after.get(argv[1], self.active)
        return 0, "", ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, value in (("vm/swappiness", "60"), ("kernel/panic", "0"), ("kernel/panic_on_oops", "0")):
        path = tmp_path / "proc/sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n", encoding="utf-8")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/watchdog0").touch()
    return tmp_path


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in root.rglob("*") if path.is_file()}


def change(systemd: Systemd, given: Protection) -> list[plan.Step]:
    root = str(systemd.root)
    steps = plan.steps(given, io_host.read(systemd, root))
    io_host.apply(systemd, steps, root)
    return steps


def test_a_host_is_protected_once_and_restored(root: Path) -> None:
    before, systemd = files(root), Systemd(root)
    assert change(systemd, ALL)
    assert (root / "proc/sys/kernel/panic").read_text(encoding="utf-8") == "10\n"
    assert (systemd.active, systemd.seconds) == ("active", (60, 600))
    assert change(systemd, ALL) == []
    systemd.calls.clear()
    io_host.restore(systemd, str(root))
    assert files(root) == before
    assert not (root / "etc/systemd/system.conf.d").exists()
    assert (systemd.active, systemd.seconds) == ("inactive", (0, 600))
    assert [name for name in systemd.calls if name in ("daemon-reexec", "disable")] == ["daemon-reexec", "disable"]


def test_the_folder_of_an_administrator_stays(root: Path) -> None:
    own = root / "etc/systemd/system.conf.d/own.conf"
    own.parent.mkdir(parents=True)
    own.touch()
    systemd = Systemd(root)
    change(systemd, ALL)
    io_host.restore(systemd, str(root))
    assert own.exists()


def test_a_host_without_a_file_asks_systemd_nothing(root: Path) -> None:
    systemd = Systemd(root)
    assert io_host.read(systemd, str(root)) == plan.HostState(
        values=io_host.read(systemd, str(root)).values, device=True
    )
    assert systemd.calls == []


def test_a_clock_that_the_gpu_refuses_is_an_error_and_differs_in_the_next_run(root: Path) -> None:
    systemd = Systemd(root, works=False)
    with pytest.raises(ValueError, match=r"restart gb10-gpu-clock\.service failed: .* is not supported"):
        change(systemd, Protection(gpu_clock=2100))
    assert [step.kind for step in plan.steps(Protection(gpu_clock=2100), io_host.read(systemd, str(root)))] == ["limit"]


def test_a_failed_unit_is_not_listed_after_its_removal(root: Path) -> None:
    systemd = Systemd(root, works=False)
    with pytest.raises(ValueError, match="failed"):
        change(systemd, Protection(gpu_clock=2100))
    assert systemd.active == "failed"
    io_host.restore(systemd, str(root))
    assert systemd.active == "inactive" and plan.UNIT_FILE[1:] not in files(root)


@pytest.mark.skipif(any(map(os.path.lexists, plan.FILES)), reason="this machine has the files of the role")
def test_the_module_shows_every_change(tmp_path: Path) -> None:
    answer = run_module("host_guard", {"gpu_clock": 2100, "swappiness": 0, "panic": 10}, tmp_path, check=True)
    assert answer["changed"] is True
    text = "".join(each["after"] for each in answer["diff"])
    assert "--lock-gpu-clocks=0,2100" in text and "kernel.panic_on_oops = 1" in text
    assert not any(map(os.path.lexists, plan.FILES))
    assert run_module("host_guard", {}, tmp_path)["changed"] is False
    assert "300 to 3003 MHz" in run_module("host_guard", {"gpu_clock": 9}, tmp_path, check=True)["msg"]


PLAY = """\
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: gb10.cluster.host_guard}
"""
TASK = "Protect the host, or restore its former state"


@pytest.mark.slow
@pytest.mark.parametrize("due", [True, False])
def test_the_role_in_check_mode(tmp_path: Path, due: bool) -> None:
    recorded = json.loads((ROOT / "tests/unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
    protection: dict[str, Any] = {"gpu_clock": 2100, "swappiness": -1, "hardware_watchdog": 0, "panic": 0}
    node = {**recorded["nodes"][0], "host_guard": {"protection": protection, "due": due}}
    program(tmp_path / "bin", "nvidia-smi", "exit 1")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    hosts = {"spark1": {"ansible_become": False, "ansible_python_interpreter": sys.executable}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    extra = json.dumps({"gb10_plan": {**recorded, "node": node}})
    done = run_playbook(
        str(tmp_path / "play.yml"), ["-i", str(tmp_path / "hosts.json"), "-e", extra, "--check", "--diff"]
    ).assert_ok()
    assert (TASK in done.changed_tasks()) is due
    assert ("--lock-gpu-clocks=0,2100" in done.output) is due
