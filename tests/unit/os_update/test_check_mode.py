"""The step os_update in check mode: no step changes a file, runs a program that does more than read, or boots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ansible.constants  # noqa: F401  # Its first import makes a folder, which the recorder would refuse.
import pytest
from run_module import program, run_module
from unchanged import unchanged

from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state, plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import Boot, Entry, Kernel, State, Trial

OLD, NEW = "6.17.0-1031-nvidia", "6.17.0-1032-nvidia"
ENTRIES = (Entry("simple", NEW), Entry(f"menu>{NEW}", NEW), Entry(f"menu>{OLD}", OLD))
TRIAL = Trial(OLD, NEW, True)
#: Step -> the state in which it has something to change, and whether its result says so.
STEPS: dict[str, tuple[State, bool]] = {
    "refresh": (State(OLD), False),
    "pause": (State(OLD), True),
    "resume": (State(OLD), True),
    "keep": (State(OLD, kernels=(Kernel(NEW), Kernel(OLD)), boot=Boot(ENTRIES, NEW, "", True)), True),
    "options": (State(OLD), True),
    "download": (State(OLD), False),
    "upgrade": (State(OLD), True),
    "firmware": (State(OLD), True),
    "boot": (
        State(OLD, kernels=(Kernel(NEW), Kernel(OLD)), boot=Boot(ENTRIES, OLD, "", True), trial=Trial(OLD, "", True)),
        True,
    ),
    "confirm": (State(NEW, kernels=(Kernel(NEW), Kernel(OLD)), boot=Boot(ENTRIES, OLD, "", True), trial=TRIAL), True),
}


def reads(command: Sequence[str]) -> bool:
    return Path(command[0]).name == "systemctl" and command[1:3] == ["--quiet", "is-active"]


@pytest.mark.parametrize("step", STEPS)
def test_no_step_changes_the_node(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, changes = STEPS[step]
    programs = ("systemctl", "grub-mkconfig", "grub-reboot", "systemd-run", "fwupdmgr", "apt-get", "dpkg", "journalctl")
    for name in programs:
        program(tmp_path / "bin", name, "exit 0")
    settings = '{"update": {"enabled": true}}'
    files = {
        "BOOT_FILE": "" if step == "keep" else plan.remembered(TRIAL),
        "OPTIONS_FILE": "",
        "PAUSE_FILE": plan.PAUSE if step == "resume" else "",
        "DASHBOARD_FORMER": host_guard_plan.record(settings) if step == "resume" else "",
        "DASHBOARD_FILE": (host_guard_plan.without_updates(settings) or "") if step == "resume" else settings,
    }
    for name, text in files.items():
        owner = host_guard_plan if name == "DASHBOARD_FILE" else plan
        monkeypatch.setattr(owner, name, str(tmp_path / name))
        if text:
            (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(io_state, "boot", lambda _run: state.boot)
    monkeypatch.setattr(io_state, "read", lambda _run, **_options: state)
    with unchanged(reads) as tried:
        given = {"step": step, **({"kernel_options": ["kho=off"]} if step == "options" else {})}
        answer = run_module("os_update", given, tmp_path / "bin", check=True)
    assert tried == []
    assert (answer.get("failed", False), answer["changed"], "boot_id" in answer) == (False, changes, False)
    assert {name: path.read_text(encoding="utf-8") for name in files if (path := tmp_path / name).exists()} == {
        name: text for name, text in files.items() if text
    }


def test_the_recorder_refuses_effects(tmp_path: Path) -> None:
    with unchanged(reads) as tried:
        with pytest.raises(PermissionError, match="refused in this test"):
            (tmp_path / "x").write_text("x", encoding="utf-8")
        with pytest.raises(PermissionError):
            (tmp_path / "x").mkdir()
        (tmp_path / "x").exists()
    assert [each.split()[0] for each in tried] == ["open", "os.mkdir"]
