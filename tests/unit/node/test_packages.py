"""Debian packages of a node: the missing ones, apt's lock and its holder, stale lists, a pending reboot, and the
wait."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.node import io_packages, packages
from ansible_collections.gb10.cluster.plugins.plugin_utils import polling
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import debian_packages

LISTING = "ii \tg++\t4:13.2.0-7ubuntu1\nun \tninja-build\t\nrc \tccache\t4.9\nhi \tlibnuma1\t2.0.18-1\n"


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        (["g++", "libnuma1"], []),
        # Known to dpkg, but not installed; only its configuration is left; unknown.
        (["ninja-build", "ccache", "python3-dev"], ["ninja-build", "ccache", "python3-dev"]),
        (["g++=4:13.2.0-7ubuntu1", "g++:amd64", "g++=4:13.*", "g++=4:14.*"], ["g++=4:14.*"]),
    ],
)
def test_the_missing_packages(wanted: list[str], missing: list[str]) -> None:
    assert packages.lacking(wanted, LISTING) == missing


def test_dpkg_is_asked_in_the_format_that_is_read() -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    found = io_packages.read(run, ["dpkg", "no-such-package", "dpkg=0", "--admindir=/nowhere"])
    assert found["lacking"] == ["no-such-package", "dpkg=0", "--admindir=/nowhere"]


@pytest.mark.parametrize(
    ("age", "stale"), [(None, True), (0.0, False), (86399.0, False), (86400.0, True), (-90000.0, True)]
)
def test_lists_older_than_a_day_or_from_the_future_are_stale(age: float | None, stale: bool) -> None:
    assert packages.stale(age) is stale


def test_the_age_of_the_lists(tmp_path: Path) -> None:
    lists, stamp = tmp_path / "var/lib/apt/lists", tmp_path / "var/lib/apt/periodic/update-success-stamp"
    lists.mkdir(parents=True)
    assert io_packages.lists_age(str(tmp_path)) is None
    (lists / "ports.ubuntu.com_dists_noble_main_binary-arm64_Packages.lz4").touch()
    # An attempt that failed changes the folder too, so the stamp counts where there is one.
    stamp.parent.mkdir()
    stamp.touch()
    now = time.time()
    os.utime(stamp, (now - 90000, now - 90000))
    assert 89990 < (io_packages.lists_age(str(tmp_path)) or 0) < 90100
    stamp.unlink()
    assert (io_packages.lists_age(str(tmp_path)) or 0) < 100


HOLD = (
    "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print('held', "
    "flush=True); time.sleep(60)"
)


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Hold a lock as apt does, in another process; yield its PID."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    "lock", ["var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock"]
)
def test_the_holder_of_a_real_lock(tmp_path: Path, lock: str) -> None:
    assert io_packages.holder(str(tmp_path)) == {}
    with held(tmp_path / lock) as pid:
        found = io_packages.holder(str(tmp_path))
        assert (found["pid"], found["process"].startswith("python")) == (pid, True)
    # The file stays, and nobody holds it.
    assert (tmp_path / lock).exists()
    assert io_packages.holder(str(tmp_path)) == {}


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        io_packages.holder(str(tmp_path))


def test_a_holder_without_a_number_here_is_a_process_that_is_not_visible(tmp_path: Path) -> None:
    """The kernel reports -1 for a lock of an open file, and 0 for a process of another PID namespace."""
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    with (tmp_path / "var/lib/dpkg/lock").open("w", encoding="ascii") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        assert io_packages.holder(str(tmp_path)) == {"pid": None, "process": "", "unit": ""}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (None, packages.State()),
        ({}, packages.State()),
        ({"lacking": ["make"], "holder": {"pid": 7}}, packages.State(("make",), "a process (PID 7)")),
        ({"reboot": {"required": False, "packages": ["libc6"]}}, packages.State()),
        ({"reboot": {"required": True, "packages": ["libc6"]}}, packages.State(reboot=("libc6",))),
        ({"reboot": {"required": True}}, packages.State(reboot=())),
    ],
)
def test_the_facts_of_a_node(facts: dict[str, Any] | None, expected: packages.State) -> None:
    assert packages.parse(facts) == expected


@pytest.mark.parametrize(
    ("process", "text"),
    [
        ({}, ""),
        (
            {"pid": 7, "process": "unattended-upgr", "unit": "apt-daily-upgrade.service"},
            "unattended-upgr (PID 7, apt-daily-upgrade.service)",
        ),
        ({"pid": 7, "process": "", "unit": ""}, "a process (PID 7)"),
        ({"pid": None, "process": "", "unit": ""}, "a process that is not visible here, such as one in a container"),
    ],
)
def test_the_holder_as_text(process: dict[str, Any], text: str) -> None:
    assert packages.holder(process) == text


def test_a_pending_reboot(tmp_path: Path) -> None:
    assert io_packages.reboot(str(tmp_path)) == {"required": False, "packages": []}
    (tmp_path / "run").mkdir()
    (tmp_path / "run/reboot-required").touch()
    assert io_packages.reboot(str(tmp_path)) == {"required": True, "packages": []}
    (tmp_path / "run/reboot-required.pkgs").write_text("linux-base\nlibc6\nlinux-base\n$(x)\n", encoding="ascii")
    assert io_packages.reboot(str(tmp_path))["packages"] == ["linux-base", "libc6"]


@pytest.mark.parametrize(
    ("count", "whose"),
    [
        (0, ""),
        (1, " for lib0"),
        (5, " for lib0, lib1, lib2, lib3, lib4"),
        (7, " for lib0, lib1, lib2, lib3, lib4 and 2 more"),
    ],
)
def test_a_pending_reboot_names_some_packages(count: int, whose: str) -> None:
    text = f"a reboot is pending{whose}. Fix: run playbooks/stop.yml, then reboot the node"
    assert packages.pending_reboot([f"lib{number}" for number in range(count)]) == text


# --- the wait and the installation ---

UPGRADE = {"pid": 7, "process": "unattended-upgr", "unit": ""}
FREE: dict[str, Any] = {}
LACKS = ["g++", "make"]


def state(holder: Mapping[str, Any] = FREE, lacking: list[str] | None = None, stale: bool = False) -> dict[str, Any]:
    return {"lacking": LACKS if lacking is None else lacking, "holder": dict(holder), "stale": stale}


class Host:
    """A host with these states, one for each call of the module, the last one repeated; and with results of apt."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        states: list[dict[str, Any]],
        apt: list[dict[str, Any]],
        check: bool = False,
    ) -> None:
        self.states, self.apt, self.now = list(states), list(apt), 1000.0
        self.shown: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.step = object.__new__(Decision)
        monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))
        display = SimpleNamespace(display=self.shown.append, warning=lambda text: self.shown.append(f"warning: {text}"))
        monkeypatch.setattr(polling, "Display", lambda: display)
        monkeypatch.setattr(debian_packages, "Display", lambda: display)
        monkeypatch.setattr(self.step, "_task", SimpleNamespace(check_mode=check), raising=False)
        monkeypatch.setattr(self.step, "_execute_module", self._answer, raising=False)
        monkeypatch.setattr(
            self.step, "lookup", lambda name, terms, _variables, **options: TIMEOUT[name, *terms, *options.values()]
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _answer(self, module_name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        del task_vars
        if module_name == "gb10.cluster.node_step":
            assert module_args == {"name": "debian_packages", "inputs": {"names": LACKS}}
            return self.states.pop(0) if len(self.states) > 1 else self.states[0]
        assert module_name == "ansible.builtin.apt"
        self.asked.append(module_args)
        return self.apt.pop(0)

    def run(self) -> dict[str, Any]:
        given = debian_packages.Inputs(names=LACKS)
        return debian_packages.run(self.step, given, {"inventory_hostname": "spark1"})


TIMEOUT = {("gb10.cluster.role_variables", "gb10_apt_timeout", "gb10"): 900}
NOTHING = {"changed": False, "packages": [], "diff": {"before": "", "after": ""}}
DONE = {"changed": True, "packages": LACKS, "diff": {"before": "", "after": "g++\nmake\n"}}
UPDATE = {"update_cache": True, "update_cache_retries": 3}
INSTALL = {"name": LACKS, "state": "present", "install_recommends": False}
WAITING = "  spark1: apt is locked by unattended-upgr (PID 7): waiting, {} of 900 s"
INSTALLING = "  spark1: installing g++, make"
OFFLINE = {"failed": True, "msg": "no network"}
NOT_UPDATED = "warning: spark1: the package lists could not be updated, and the packages were installed from old lists: no network"
FAILS = (
    "spark1: apt cannot install g++, make: 404 Not Found Before: no network Fix: resolve the error of `sudo apt-get "
    "update && sudo apt-get install g++ make` on spark1, then run again"
)
LOCKED = (
    "spark1: apt is still locked by unattended-upgr (PID 7) after 15 min. Expected: a free lock, to install g++, make. "
    "Fix: wait until that process ends, then run again. To wait longer, raise gb10_apt_timeout"
)


@pytest.mark.parametrize(
    ("states", "apt", "expected", "asked", "shown"),
    [
        pytest.param([state(UPGRADE, [], stale=True)], [], NOTHING, [], [], id="nothing missing"),
        pytest.param([state()], [{}], DONE, [INSTALL], [INSTALLING], id="one call installs everything"),
        pytest.param([state(stale=True)], [{}, {}], DONE, [UPDATE, INSTALL], [INSTALLING], id="stale lists"),
        pytest.param(
            [*[state(UPGRADE)] * 17, state()],
            [{}],
            DONE,
            [INSTALL],
            [*map(WAITING.format, (0, 30, 60)), INSTALLING],
            id="the wait names the holder, and ends with it",
        ),
        pytest.param(
            [state(), state(UPGRADE), state()],
            [{"failed": True, "msg": "Failed to lock apt"}, {}],
            DONE,
            [INSTALL, INSTALL],
            [INSTALLING, INSTALLING],
            id="another process takes the lock in between",
        ),
        pytest.param(
            [state(stale=True)],
            [OFFLINE, {}],
            DONE,
            [UPDATE, INSTALL],
            [INSTALLING, NOT_UPDATED],
            id="a foreign source fails",
        ),
        pytest.param(
            [state(stale=True)],
            [OFFLINE, {"failed": True, "msg": "404\n Not Found"}],
            {"failed": True, "msg": FAILS},
            [UPDATE, INSTALL],
            [INSTALLING],
            id="apt fails",
        ),
        pytest.param(
            [state(UPGRADE)],
            [],
            {"failed": True, "msg": LOCKED},
            [],
            [WAITING.format(seconds) for seconds in range(0, 900, 30)],
            id="a lock that stays",
        ),
    ],
)
def test_the_wait_and_the_installation(
    monkeypatch: pytest.MonkeyPatch,
    states: list[dict[str, Any]],
    apt: list[dict[str, Any]],
    expected: dict[str, Any],
    asked: list[Any],
    shown: list[str],
) -> None:
    host = Host(monkeypatch, states, apt)
    assert (host.run(), host.asked, host.shown) == (expected, asked, shown)


def test_check_mode_shows_the_packages_and_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, [state(UPGRADE)], [], check=True)
    assert (host.run(), host.asked, host.now) == (DONE, [], 1000)
