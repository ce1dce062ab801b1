"""Steps of an update that are killed anywhere, on a folder with a model of GRUB: its files, and the choice for a boot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.node_steps import os_update
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_change, io_state, parse, plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import (
    Boot,
    Entry,
    Firmware,
    Kernel,
    State,
    Trial,
)

OLD, NEW = "6.17.0-1031-nvidia", "6.17.0-1032-nvidia"


class Killed(BaseException):
    """The process ended without any handler, as by SIGKILL."""


@dataclass
class Node:
    """A node with two kernels. ``left``: changes until it is killed, None for never."""

    file: Path
    default: str = NEW
    once: str = ""
    running: str = OLD
    left: int | None = None
    panic: bool = False

    def changed(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def run(self, command: Sequence[str]) -> tuple[int, str, str]:
        self.changed()
        if command[0] == "grub-mkconfig":
            text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
            self.default = OLD if f'GRUB_DEFAULT="menu>{OLD}"' in text else NEW
            self.panic = "panic=30" in text
        elif command[0] == "grub-reboot":
            self.once = command[1].removeprefix("menu>")
        return 0, "", ""

    def power_cycle(self) -> None:
        self.running, self.once = self.once or self.default, ""

    def state(self) -> State:
        entries = (Entry("simple", NEW), Entry(f"menu>{NEW}", NEW), Entry(f"menu>{OLD}", OLD))
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        boot = Boot(entries, self.default, self.once, True)
        return State(self.running, kernels=(Kernel(NEW), Kernel(OLD)), boot=boot, trial=parse.trial(text), serves=True)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    found = Node(tmp_path / "boot.cfg")
    replaced = io_file.replace

    def replace(path: str, text: str | None) -> None:
        found.changed()
        replaced(path, text)

    monkeypatch.setattr(plan, "BOOT_FILE", str(found.file))
    monkeypatch.setattr(io_file, "replace", replace)
    monkeypatch.setattr(io_state, "boot", lambda _run: found.state().boot)
    return found


def keep(node: Node) -> None:
    io_change.keep(node.run, node.state(), check=False)


def boot(node: Node) -> None:
    io_change.boot(node.run, node.state(), check=False)


def confirm(node: Node) -> None:
    io_change.confirm(node.run, node.state(), check=False)


def killed(node: Node, step: Callable[[Node], None]) -> Iterator[None]:
    """Do a step that is killed after none, one, two … of its changes, until it ends by itself."""
    before = node.file.read_text(encoding="utf-8") if node.file.exists() else None
    former = (node.default, node.once, node.running, node.panic)
    for changes in range(10):
        if before is None:
            node.file.unlink(missing_ok=True)
        else:
            node.file.write_text(before, encoding="utf-8")
        node.default, node.once, node.running, node.panic = former
        node.left = changes
        try:
            step(node)
        except Killed:
            node.left = None
            yield
        else:
            assert changes > 1, "the step changed nothing"
            node.left = None
            return
    raise AssertionError("the step does not end")


@pytest.mark.parametrize("step", os_update._STEPS)
def test_check_mode_neither_changes_nor_boots_a_node(node: Node, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    if step in ("boot", "confirm"):
        keep(node)
    if step == "confirm":
        boot(node)
        node.power_cycle()

    def query(command: Sequence[str]) -> tuple[int, str, str]:
        assert command[:3] == ["systemctl", "--quiet", "is-active"]
        return 1, "", ""

    monkeypatch.setattr(os_update, "runner", lambda _module: query)
    monkeypatch.setattr(io_state, "read", lambda _run, **_options: node.state())
    node.left = 0
    given = os_update.Inputs(step=step, kernel_options=["kho=off"])
    assert "boot_id" not in os_update.run(cast("Any", SimpleNamespace(check_mode=True)), given)


@pytest.mark.parametrize("entries_have_it", [True, False])
def test_an_option_of_the_command_line_is_added_once_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries_have_it: bool
) -> None:
    file, made = tmp_path / "options.cfg", list[str]()

    def boot(_run: Any) -> Boot:
        text = file.read_text(encoding="utf-8") if file.exists() and made and entries_have_it else ""
        return Boot(options=("kho=off",) if "kho=off" in text else ())

    def run(command: Any) -> tuple[int, str, str]:
        made.append(command[0])
        return 0, "", ""

    monkeypatch.setattr(plan, "OPTIONS_FILE", str(file))
    monkeypatch.setattr(io_state, "boot", boot)
    assert [each["after"] for each in io_change.add_options(run, ["kho=off"], check=True)] == [
        plan.options_file(["kho=off"])
    ]
    assert (made, file.exists()) == ([], False)
    if not entries_have_it:
        with pytest.raises(ValueError, match="GRUB's entries lack kho=off"):
            io_change.add_options(run, ["kho=off"], check=False)
        return
    io_change.add_options(run, ["kho=off"], check=False)
    assert made == ["grub-mkconfig"]
    assert file.read_text(encoding="utf-8").endswith('\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX kho=off"\n')
    assert io_change.add_options(run, ["kho=off"], check=False) == []


def test_a_killed_keep_is_repeated(node: Node) -> None:
    for _ in killed(node, keep):
        keep(node)
        assert node.default == OLD and node.panic
        assert node.state().trial == Trial(OLD, "", True)


@pytest.mark.parametrize("power", [False, True], ids=["repeated", "after a power cut"])
def test_a_killed_order_to_boot_never_looks_like_a_kernel_that_did_not_start(node: Node, power: bool) -> None:
    keep(node)
    for _ in killed(node, boot):
        if power:
            node.power_cycle()
        if (found := plan.stage(node.state())) == "boot":
            boot(node)
            node.power_cycle()
        else:
            assert power and found == "verify"
        assert node.running == NEW and plan.stage(node.state()) == "verify"
        assert node.default == OLD


def test_a_killed_confirmation_is_repeated(node: Node) -> None:
    keep(node)
    boot(node)
    node.power_cycle()
    for _ in killed(node, confirm):
        # Without its memory, nothing would be left to do.
        if node.state().trial:
            assert plan.stage(node.state()) == "verify"
            confirm(node)
        assert node.default == NEW and not node.panic and not node.file.exists()


def test_another_default_of_a_later_file_is_refused(node: Node) -> None:
    node.run = lambda _command: (0, "", "")  # type: ignore[method-assign]  # mkconfig, whose default another file sets
    with pytest.raises(
        ValueError, match=rf"GRUB's default is {NEW} after .* named {OLD}\. .* Fix: remove GRUB_DEFAULT"
    ):
        keep(node)


def test_the_end_needs_the_booted_kernel_and_grubs_default(node: Node) -> None:
    keep(node)
    with pytest.raises(ValueError, match=r"at the step boot\. Fix: run playbooks/os_update\.yml again"):
        confirm(node)
    boot(node)
    node.power_cycle()
    node.run = lambda _command: (0, "", "")  # type: ignore[method-assign]  # mkconfig, whose default another file sets
    with pytest.raises(ValueError, match=rf"GRUB's default is {OLD}\. Expected: {NEW}\. Fix: remove GRUB_DEFAULT"):
        confirm(node)
    assert plan.stage(node.state()) == "verify"


def test_a_pause_needs_no_folder_and_leaves_what_the_owner_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.json"
    # Its record is longer than the longest settings.
    former = json.dumps({"update": {"enabled": True}, "note": "\n" * (io_change._MOST // 2 - 40)})
    settings.write_text(former, encoding="utf-8")
    for owner, name, path in (
        (plan, "PAUSE_FILE", tmp_path / "pause"),
        (plan, "DASHBOARD_FORMER", tmp_path / "gb10" / "former.json"),
        (host_guard_plan, "DASHBOARD_FILE", settings),
    ):
        monkeypatch.setattr(owner, name, str(path))
    for changed in (False, True):
        for _twice in range(2):
            io_change.pause(lambda _command: (0, "", ""), check=False)
        assert '"enabled": false' in settings.read_text(encoding="utf-8")
        if changed:
            settings.write_text("{}", encoding="utf-8")
        io_change.resume(check=False)
        assert settings.read_text(encoding="utf-8") == ("{}" if changed else former)
        assert not (tmp_path / "gb10" / "former.json").exists() and not (tmp_path / "pause").exists()


@pytest.mark.parametrize("step", [io_change.download, io_change.upgrade])
def test_apt_begins_after_what_a_power_cut_interrupted(step: Callable[[Any], str]) -> None:
    done: list[str] = []

    def run(command: Sequence[str]) -> tuple[int, str, str]:
        if command[0] == "systemd-run":
            done.append(next(each for each in command if each in ("dpkg", "apt-get")))
            # A package needs one that is not unpacked yet.
            return int(done[-1] == "dpkg"), "", ""
        return int(command[0] == "systemctl"), "the log", ""

    assert step(run) == "the log"
    assert done == ["dpkg", "apt-get"]


@pytest.mark.parametrize("hours", [1, 3])
def test_apt_waits_for_the_upgrade_that_a_killed_run_began(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    clock, begun = [0.0], list[str]()
    slow = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _seconds: clock.append(clock.pop() + 61))
    monkeypatch.setattr(io_change, "time", slow)

    def run(command: Sequence[str]) -> tuple[int, str, str]:
        if command[0] == "systemctl":
            return 0 if clock[0] < hours * 3600 else 3, "", ""
        begun.append(command[0])
        return 0, "", ""

    if hours > 2:
        with pytest.raises(ValueError, match=r"gb10-os-upgrade\.service has not ended\. Fix: see journalctl"):
            io_change.upgrade(run)
        assert begun == []
    else:
        io_change.upgrade(run)
        assert clock[0] >= 3600 and begun[-1] == "journalctl"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("E: no space\n\n  left on device \n", "E: no space | left on device"),
        ("", "Unit gb10-os-upgrade.service failed"),
        ("x" * 9000, "x" * 1000),
    ],
)
def test_a_failed_upgrade_names_its_command_and_the_end_of_its_log(log: str, shown: str) -> None:
    def run(command: Sequence[str]) -> tuple[int, str, str]:
        if command[0] == "journalctl":
            return 0, log, ""
        return (100 if command[0] == "systemd-run" else 3), "", "Unit gb10-os-upgrade.service failed\n"

    with pytest.raises(ValueError, match=r"^dpkg --configure -a failed with 100: .* Fix: correct the cause") as error:
        io_change.upgrade(run)
    assert shown in str(error.value) and len(str(error.value)) < 2000


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, ""),
        (2, ""),
        (3, ""),
        (1, r"^fwupdmgr refresh failed with 1: no network\. Fix: give the node access to the internet"),
        (127, r"^no network\. Fix: install the package fwupd, or leave out os_update_firmware"),
    ],
)
def test_a_list_of_firmware_that_is_not_refreshed_is_an_error(status: int, expected: str) -> None:
    def run(_command: Sequence[str]) -> tuple[int, str, str]:
        return status, "", "no\nnetwork" if status == 1 else "no network"

    if expected:
        with pytest.raises(ValueError, match=expected):
            io_change.refresh(run)
    else:
        assert io_change.refresh(run) == ""


@pytest.mark.parametrize("former", ["", "libc6\n"])
def test_firmware_asks_for_a_reboot_like_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str
) -> None:
    flag, packages = tmp_path / "reboot-required", tmp_path / "reboot-required.pkgs"
    monkeypatch.setattr(io_change, "_REBOOT", str(flag))
    if former:
        packages.write_text(former, encoding="utf-8")
    offers: list[tuple[Firmware, ...] | None] = [(), None]
    monkeypatch.setattr(io_state, "offered", lambda _run: offers[0])
    assert io_change.firmware(lambda _command: (0, "the log", "")) == "" and not flag.exists()
    del offers[0]
    assert io_change.firmware(lambda _command: (0, "the log", "")) == "the log"
    assert flag.exists() and packages.read_text(encoding="utf-8") == f"{former}fwupd\n"
