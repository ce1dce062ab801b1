"""Services that the module systemd_unit installs, starts, stops and removes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths

RUNNING = {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active", "MainPID": str(os.getpid())}
STOPPED = {"LoadState": "loaded", "UnitFileState": "disabled", "ActiveState": "inactive", "MainPID": "0"}
MISSING = {"LoadState": "not-found", "UnitFileState": "", "ActiveState": "inactive", "MainPID": "0"}


class Host:
    """A folder with a unit, and a systemctl that records its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.unit = folder, folder / "gb10-x.service"

    def call(self, shown: dict[str, str], check: bool = False, **arguments: Any) -> tuple[dict[str, Any], list[str]]:
        """Return the module's result, and the calls that change something. ``shown``: systemd's properties."""
        lines = "".join(f"{name}={value}\n" for name, value in {**_REST, **shown}.items())
        (self.folder / "shown").write_text(lines, encoding="utf-8")
        asked = self.folder / "asked"
        asked.write_text("", encoding="utf-8")
        script = f'case "$1" in show) cat {self.folder}/shown ;; reset-failed) exit 1 ;; *) echo "$*" >>{asked} ;; esac'
        tools = program(self.folder / "bin", "systemctl", script)
        given = {"name": os.path.relpath(self.unit, "/etc/systemd/system"), **arguments}
        result = run_module("systemd_unit", given, tools, check=check)
        name = str(given["name"])
        return result, [line.replace(f" {name}", "") for line in asked.read_text(encoding="utf-8").splitlines()]


_REST = {
    **dict.fromkeys(("SubState", "Result", "InvocationID", "Job", "Environment", "ExecStart", "ExecStopPost"), ""),
    **dict.fromkeys(("NRestarts", "ExecMainStatus", "ExecMainStartTimestampMonotonic"), "0"),
    "InactiveEnterTimestampMonotonic": "0",
    "ActiveExitTimestampMonotonic": "0",
}
PLAN = {"unit": {"text": "[Service]\n", "inputs": "abc"}}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_new_service_is_written_enabled_and_started(host: Host) -> None:
    planned, calls = host.call(MISSING, check=True, state="started", **PLAN)
    assert planned["changed"] and planned["diff"][0]["after"] == "[Service]\n"
    assert calls == [] and not host.unit.exists()
    done, calls = host.call(MISSING, state="started", **PLAN)
    assert done["changed"] and calls == ["daemon-reload", "enable", "--no-block restart"]
    assert host.unit.read_text(encoding="utf-8") == "[Service]\n"


EQUAL = {**RUNNING, "MainPID": "0", "ActiveState": "activating", "Environment": "GB10_INPUTS=abc"}
CONTAINER = {"ExecStopPost": "{ path=/usr/bin/docker ; argv[]=/usr/bin/docker rm --force gb10-x ; }"}


@pytest.mark.parametrize(
    ("shown", "given", "expected", "drops"),
    [
        (MISSING, {"state": "written", **PLAN}, [], False),
        (EQUAL, {"state": "started", **PLAN}, [], False),
        (RUNNING, {"state": "started", **PLAN}, ["daemon-reload", "--no-block restart"], True),
        ({**RUNNING, **CONTAINER}, {"state": "started", **PLAN}, ["stop", "daemon-reload", "--no-block restart"], True),
        (STOPPED, {"state": "started"}, ["daemon-reload", "enable", "--no-block start"], False),
    ],
    ids=["written only", "equal", "other inputs", "other inputs of a container", "the unit of the node"],
)
def test_a_service_is_started_as_it_is_needed(
    host: Host, shown: dict[str, str], given: dict[str, Any], expected: list[str], drops: bool
) -> None:
    equal = shown is EQUAL
    if equal:
        host.call(MISSING, state="written", **PLAN)
    done, calls = host.call(shown, **given)
    assert (calls, done["drops"], host.unit.exists()) == (expected, drops, "unit" in given)
    assert done["changed"] is done["start_needed"] is not equal


def test_a_running_service_is_not_restarted_without_permission(host: Host) -> None:
    for state in ("written", "started"):
        done, calls = host.call(RUNNING, state=state, allowed=False, **PLAN)
        assert "must be restarted: its launch inputs differ" in done["msg"] and "gb10_allow_restart" in done["msg"]
        assert calls == [] and not host.unit.exists()


def test_the_old_unit_stops_its_container(host: Host) -> None:
    container = {"ExecStopPost": "{ path=/usr/bin/docker ; argv[]=/usr/bin/docker rm --force gb10-x ; }"}
    _done, calls = host.call({**RUNNING, **container}, state="started", **PLAN)
    assert calls[0] == "stop"


def test_a_start_without_a_plan_takes_the_unit_of_the_node(host: Host) -> None:
    _done, calls = host.call(STOPPED, state="started")
    assert calls == ["daemon-reload", "enable", "--no-block start"]


@pytest.mark.parametrize(("name", "kept"), [("gb10-ray.service", False), ("gb10-other.service", True)])
def test_a_requested_start_of_a_rank_forgets_the_stop_by_the_memory_guard(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str, kept: bool
) -> None:
    stop = host.folder / "stop.json"
    stop.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(paths, "MEMORY_GUARD_STOP", str(stop))
    host.call(STOPPED, state="started", name=name)
    assert stop.exists() is kept


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (RUNNING, ["disable", "stop"]),
        ({**RUNNING, "UnitFileState": ""}, ["stop"]),
        ({**STOPPED, "UnitFileState": "enabled"}, ["disable"]),
        (STOPPED, []),
        (MISSING, []),
    ],
    ids=["running", "without its file", "enabled", "stopped", "no"],
)
def test_a_service_is_stopped_once(host: Host, shown: dict[str, str], expected: list[str]) -> None:
    assert host.call(shown, check=True, state="stopped")[1] == []
    done, calls = host.call(shown, state="stopped")
    assert (done["changed"], calls) == (bool(expected), expected)


def test_a_service_is_removed_with_its_files_and_no_link_is_followed(host: Host) -> None:
    folder, link, target = host.folder / "state", host.folder / "link", host.folder / "target"
    for path in (folder, target):
        path.mkdir()
        (path / "file").write_text("x", encoding="utf-8")
    link.symlink_to(target)
    host.unit.write_text("x", encoding="utf-8")
    given = {"state": "absent", "removed": [str(folder), str(link)]}
    refused, calls = host.call(RUNNING, allowed=False, broken="it is not used", **given)
    assert "must be stopped: it is not used" in refused["msg"] and calls == [] and host.unit.exists()
    planned, calls = host.call(RUNNING, check=True, **given)
    assert planned["changed"] and str(folder) in planned["diff"]["before"] and calls == [] and folder.exists()
    done, calls = host.call(RUNNING, **given)
    assert done["changed"] and calls == ["disable", "stop", "daemon-reload"]
    assert not host.unit.exists() and not folder.exists() and not link.is_symlink() and (target / "file").exists()
    assert host.call(MISSING, **given)[0]["changed"] is False


def test_a_folder_that_is_too_deep_for_a_recursion_is_removed(host: Host) -> None:
    """The user of a service can make it."""
    top = host.folder / "state"
    top.mkdir()
    descriptor = os.open(top, os.O_RDONLY)
    for _level in range(1200):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    done, _calls = host.call(STOPPED, state="absent", removed=[str(top)])
    assert done["changed"] and not top.exists()


def test_a_failed_command_of_systemd_is_an_error(host: Host) -> None:
    tools = program(host.folder / "bin2", "systemctl", f'[ "$1" = show ] && cat {host.folder}/shown || exit 4')
    host.call(RUNNING)
    result = run_module("systemd_unit", {"name": "gb10-x.service", "state": "stopped"}, tools)
    assert result["failed"] and "disable gb10-x.service failed: 4" in result["msg"]
