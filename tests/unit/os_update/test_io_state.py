"""The state of a node from its files and the answers of its commands."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state, parse, plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import (
    Boot,
    Entry,
    Firmware,
    Kernel,
    Level,
    Package,
    State,
    Trial,
)

Answer = tuple[int, str, str]
OLD, NEW = "6.17.0-1031-nvidia", "6.17.0-1032-nvidia"
CHECKER = "/opt/nvidia/spark-ota-check"
#: Settings of DGX Dashboard without updates.
OFF = '{"update": {"enabled": false}}'
FILES = {
    "/proc/modules": "nvidia 1 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\n",
    "/proc/cmdline": "root=UUID=1 ro kho=off\n",
    "/sys/module/nvidia/version": "580.159.03\n",
    "/etc/dgx-release": 'DGX_OTA_VERSION="7.5.0"\n',
    f"{CHECKER}/check_ota_status.py": "",
    f"{CHECKER}/metadata/spark-ota-1.json": '{"metadata": {"name": "OTA2607", "releaseDate": "2026-07-15"}}',
    f"/boot/vmlinuz-{OLD}": "",
    f"/boot/vmlinuz-{NEW}": "",
    f"/lib/modules/{OLD}/modules.dep": "kernel/nvidia.ko:\n",
    f"/lib/modules/{OLD}/modules.builtin": "kernel/mlx5_ib.ko\n",
    "/boot/grub/grub.cfg": (
        f"set default=\"0\"\nmenuentry 'A' --id 'a' {{\n\tlinux /boot/vmlinuz-{NEW} kho=off\n}}\n"
        f"menuentry 'B' --id 'b' {{\n\tlinux /boot/vmlinuz-{OLD} kho=off\n}}\n"
    ),
    "/run/reboot-required": "",
    "/run/reboot-required.pkgs": "libc6\n",
    "/usr/bin/unattended-upgrade": "",
    host_guard_plan.DASHBOARD_FILE: '{"update": {"enabled": true}}',
    plan.BOOT_FILE: f"# former: {OLD}\n# tried: {NEW}\n# served: yes\n",
}
DONE, FAILED, ABSENT = (0, "", ""), (1, "", "refused"), (127, "", "it is not installed")
OFFER = '{"Devices": [{"Name": "UEFI", "Flags": ["updatable"], "Version": "1", "Releases": [{"Version": "2"}]}]}'
#: The start of a command, and its answer. The first one that fits counts.
ANSWERS: Mapping[str, Answer] = {
    f"/usr/bin/python3 -B {CHECKER}/check_ota_status.py": (1, '{"detected_ota": "OTA2.2", "torn": 3.3}', ""),
    "apt-get --simulate": (0, "Inst bash [1] (2 Ubuntu:24.04 [arm64])\n", ""),
    "dpkg --audit": (0, " libc6:arm64 GNU C Library\n", ""),
    "apt-mark": (0, "bash\ndocker-ce\n", ""),
    "dpkg-query": (
        1,
        f"ii \tnvidia-driver-580-open\t580.173.02-1\nrc \tlinux-image-{OLD}\t1\nun \tlinux-image-x\n",
        "",
    ),
    "grub-editenv": (0, "next_entry=b\n", ""),
    "findmnt": (0, "ext4 /dev/nvme0n1p2\n", ""),
    "apt-config": (0, 'APT::Periodic::Unattended-Upgrade "1";\n', ""),
    "fwupdmgr --help": DONE,
    "timeout 60 fwupdmgr get-updates": (0, OFFER, ""),
    "systemctl": DONE,
}
READ = State(
    os.uname().release,
    Level("7.5.0", "OTA2.2", "OTA2607", 3.3),
    packages=(Package("bash", "1", "2"),),
    broken=("libc6",),
    held=("bash", "docker-ce"),
    kernels=(Kernel(NEW, None), Kernel(OLD)),
    boot=Boot((Entry("a", NEW), Entry("b", OLD)), NEW, OLD, True, ("kho=off",)),
    reboot=("libc6", "nvidia-driver-580-open"),
    updaters=("unattended-upgrades", "DGX Dashboard"),
    trial=Trial(OLD, NEW, True),
    serves=True,
    versions={"nvidia-driver-580-open": "580.173.02-1"},
    firmware=(Firmware("UEFI", "1", "2"),),
    options=("kho=off",),
)
#: A node without DGX OS, GRUB and updaters, whose packages are up to date.
PLAIN = State(os.uname().release, packages=())


def write(folder: Path, files: Mapping[str, str]) -> str:
    """Write the files of a node, and return its root."""
    for name, text in files.items():
        path = folder / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(folder)


def read(folder: Path, files: Mapping[str, str], answers: Mapping[str, Answer], simulate: bool = True) -> State:
    def run(command: Sequence[str]) -> Answer:
        words = " ".join(command)
        return next((answer for start, answer in answers.items() if words.startswith(start)), ABSENT)

    return io_state.read(run, simulate, write(folder, files))


def test_the_state_of_a_node(tmp_path: Path) -> None:
    assert read(tmp_path, FILES, ANSWERS) == READ


def test_without_a_query_of_packages_the_rest_is_the_same(tmp_path: Path) -> None:
    answers = {
        start: answer for start, answer in ANSWERS.items() if start.startswith(("systemctl", "grub", "find", "apt-c"))
    }
    assert read(tmp_path, FILES, answers, simulate=False) == replace(
        READ, level=Level("7.5.0"), packages=None, broken=(), held=(), reboot=("libc6",), versions={}, firmware=()
    )


def test_a_node_without_anything_to_read(tmp_path: Path) -> None:
    silent = {"apt-get": DONE, "dpkg --audit": DONE, "apt-mark": DONE, "systemctl": FAILED, "dpkg-query": FAILED}
    assert read(tmp_path, {}, silent) == PLAIN


@pytest.mark.parametrize(
    ("mounted", "forgets"),
    [
        ("ext4 /dev/nvme0n1p2", True),
        ("vfat /dev/sda1", True),
        ("btrfs /dev/nvme0n1p2", False),
        ("ext4 /dev/mapper/vg-boot", False),
        ("ext4 /dev/md0", False),
        ("ext4 /dev/sda1 /dev/sdb1", False),
        ("ext4", False),
        ("", False),
    ],
)
def test_grub_forgets_the_choice_for_one_boot_on_a_plain_partition(tmp_path: Path, mounted: str, forgets: bool) -> None:
    found = read(tmp_path, FILES, {**ANSWERS, "findmnt": (0, mounted, "")})
    assert found.boot == replace(READ.boot, forgets=forgets)


@pytest.mark.parametrize("failures", [2, 3])
def test_findmnt_may_fail_while_other_mounts_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    answers = iter([FAILED] * failures + [ANSWERS["findmnt"]])
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)

    def run(command: Sequence[str]) -> Answer:
        return next(answers) if command[0] == "findmnt" else ANSWERS["grub-editenv"]

    root = write(tmp_path, FILES)
    if failures > 2:
        with pytest.raises(ValueError, match=r"findmnt --target /boot/grub failed with 1: refused"):
            io_state.boot(run, root)
    else:
        assert io_state.boot(run, root) == READ.boot


@pytest.mark.parametrize(
    ("unit", "file", "expected"),
    [
        ("apt-daily-upgrade.timer", "", ("unattended-upgrades",)),
        ("apt-daily-upgrade.timer", "/usr/bin/unattended-upgrade", ()),
        (host_guard_plan.DASHBOARD_UNIT, "", ("DGX Dashboard",)),
        # Without settings, it updates.
        (host_guard_plan.DASHBOARD_UNIT, host_guard_plan.DASHBOARD_FILE, ("DGX Dashboard",)),
        (host_guard_plan.DASHBOARD_UNIT, OFF, ()),
    ],
)
def test_an_updater_is_one_that_runs(tmp_path: Path, unit: str, file: str, expected: tuple[str, ...]) -> None:
    files = {name: text for name, text in FILES.items() if name != file}
    files |= {host_guard_plan.DASHBOARD_FILE: file} if file == OFF else {}
    answers = {f"systemctl --quiet {ask} {unit}": DONE for ask in ("is-enabled", "is-active")}
    found = read(tmp_path, files, {**answers, **ANSWERS, "systemctl": FAILED})
    assert (found.updaters, found.serves) == (expected, False)


def test_the_locks_are_those_of_the_system_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(io_state.io_packages, "holder", lambda root: asked.append(root) or {})
    read(tmp_path, FILES, ANSWERS)
    assert asked == [str(tmp_path)]


@pytest.mark.parametrize("unit", paths.UNITS)
def test_a_node_serves_if_one_of_its_services_starts_at_boot(tmp_path: Path, unit: str) -> None:
    enabled = {f"systemctl --quiet is-enabled {unit}": DONE, "systemctl": FAILED}
    assert read(tmp_path, FILES, {**enabled, "grub": DONE, "findmnt": DONE}, simulate=False).serves


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((0, OFFER, ""), READ.firmware),
        # Nothing to do, and nothing found.
        ((2, OFFER, ""), ()),
        ((3, "", "no devices"), ()),
        ((0, "no JSON", ""), None),
        ((1, OFFER, ""), None),
        ((124, OFFER, ""), None),
    ],
)
def test_the_offer_of_firmware_follows_from_fwupds_status(
    answer: Answer, expected: tuple[Firmware, ...] | None
) -> None:
    assert io_state.offered(lambda command: DONE if "--help" in command else answer) == expected


@pytest.mark.parametrize("command", ["apt-get --simulate", "dpkg --audit", "apt-mark"])
def test_a_query_of_packages_that_fails_is_no_empty_answer(tmp_path: Path, command: str) -> None:
    with pytest.raises(ValueError, match=rf"^{command}.* failed: no space left"):
        read(tmp_path, FILES, {**ANSWERS, command: (100, "", "no space\n left")})


def test_the_recorded_facts_have_no_boot_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their identifiers have the UUID of a disk."""
    monkeypatch.setattr(io_state, "read", lambda _run, **_options: READ)
    found = io_state.facts(lambda _command: DONE)
    assert found == asdict(replace(READ, boot=replace(READ.boot, entries=())))
    assert parse.state(found) == replace(READ, boot=replace(READ.boot, entries=()))
