"""The lock on the head: one run takes it, or takes it over. On the controller: whether a run has ended."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_module import run_alone, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan

ALICE = {"user": "alice", "host": "laptop", "playbook": "site.yml", "boot": "ab" * 16, "pid": "4711", "started": "123"}
BOB = dict(ALICE, user="bob", pid="42")
A, B = run_lock_plan.run_id(ALICE), run_lock_plan.run_id(BOB)


def race(folder: str, owners: Sequence[dict[str, str]], state: str = "held", breaks: str = "") -> list[str]:
    """Change the lock for all owners at the same time, each in a process of its own. Return the IDs of other holders,
    "" without one."""
    calls = [(folder, state, breaks, owner, False) for owner in owners]
    with multiprocessing.get_context("fork").Pool(len(owners), maxtasksperchild=1) as pool:
        holders = pool.starmap(io_lock.change, calls, chunksize=1)
    return [run_lock_plan.run_id(holder) if holder else "" for holder in holders]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "gb10")


@pytest.mark.slow
def test_of_20_runs_one_takes_the_lock_and_of_20_others_one_takes_it_over(folder: str) -> None:
    holder = ""
    for started in ("1", "2"):
        owners = [dict(ALICE, pid=str(pid), started=started) for pid in range(1, 21)]
        found = race(folder, owners, breaks=holder)
        holder = run_lock_plan.run_id(io_lock.look(folder))
        assert [other or run_lock_plan.run_id(owner) for owner, other in zip(owners, found, strict=True)] == [
            holder
        ] * 20
        assert found.count("") == 1
    assert [path.name for path in Path(folder).iterdir()] == ["lock.json"] and Path(
        folder
    ).stat().st_mode & 0o777 == 0o700


def test_a_lock_is_released_by_its_owner_alone(folder: str) -> None:
    assert race(folder, [ALICE]) == race(folder, [ALICE]) == [""], "a second call takes the same"
    assert race(folder, [BOB]) == race(folder, [BOB], "held", B) == race(folder, [BOB], "released") == [A]
    assert race(folder, [BOB], breaks=A) == [""]
    assert race(folder, [ALICE], "released") == [B], "a broken lock is not released"
    assert race(folder, [dict(BOB, host="desk.local")], "released") == [""] == race(folder, [BOB], "released")
    assert io_lock.look(folder) == {}


def test_the_module_in_check_mode_takes_nothing_and_reads_the_lock_of_an_earlier_release(folder: str) -> None:
    given: dict[str, Any] = {"folder": folder, "owner": BOB, "breaks": A}
    assert run_module("cluster_lock", given, check=True)["holder"] == {} and not Path(folder).exists()
    Path(folder).mkdir(mode=0o700)
    lock = {"id": "3f9a2c1e", "since": "2026-11-22", "taken": 100.5, "owner": dict(ALICE, pid=4711)}
    Path(folder, "lock.json").write_text(json.dumps(lock), encoding="utf-8")
    assert run_module("cluster_lock", given, check=True)["holder"] == {}
    holder = run_module("cluster_lock", dict(given, breaks=B))["holder"]
    assert holder == dict(ALICE, since=holder["since"], age="0") == io_lock.look(folder)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda file: file.write_text("[]"), "is not a JSON object"),
        (lambda file: file.write_text('{"owner": []}'), "is missing or invalid"),
        (lambda file: file.write_text("[" * 4000), "is not JSON"),
        (lambda file: file.write_text(" " * 5000), "longer than 4096 bytes"),
        (os.mkfifo, "not a regular file"),
        (lambda file: file.symlink_to("/proc/version"), "it is a link"),
        (lambda file: file.parent.chmod(0o770), "other users can write to"),
        (lambda file: (file.parent.rename(f"{file.parent}2"), file.parent.symlink_to("gb102")), "is not a folder"),
        pytest.param(
            lambda file: (file.touch(), os.chown(file, 12345, 12345)),
            "not root's",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user"),
        ),
    ],
)
def test_what_others_could_have_put_there_is_not_believed(folder: str, make: Any, reason: str) -> None:
    Path(folder).mkdir(mode=0o700)
    make(Path(folder, "lock.json"))
    before = sorted(Path(folder).parent.rglob("*"))
    answer = run_alone("cluster_lock", {"folder": folder, "owner": ALICE})
    assert answer["refused"] and "/run/gb10/lock.json: it cannot be used: " in answer["msg"] and reason in answer["msg"]
    assert sorted(Path(folder).parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("variables", "user"),
    [
        ({"USER": "alice", "LOGNAME": "bob"}, "alice"),
        ({"LOGNAME": "bob"}, "bob"),
        ({"USER": "", "LOGNAME": ""}, str(os.getuid())),
        ({}, str(os.getuid())),
    ],
)
def test_a_run_names_its_user(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], user: str) -> None:
    for name in ("USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert io_lock.owner(os.getpid(), "site.yml")["user"] == user


def test_only_the_same_machine_knows_that_a_run_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, child = io_lock.owner(os.getpid(), "site.yml"), subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    other = io_lock.owner(child.pid, "site.yml")
    assert run_lock_plan.lock(dict(mine, since="", age=0)) and not io_lock.ended(mine) and not io_lock.ended(other)
    assert io_lock.ended(dict(mine, pid=other["pid"])), "a later process has the number"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert io_lock.ended(other), "its parent has not reaped it"
    child.communicate()
    assert io_lock.ended(other) and io_lock.ended(dict(mine, started="1"))
    assert not io_lock.ended(dict(other, boot="ab" * 16)) and not io_lock.ended(dict(other, boot=""))
    # The kernel hides the processes of other users (hidepid).
    monkeypatch.setattr(io_lock.Path, "read_bytes", lambda path: path.joinpath("hidden").stat())
    assert io_lock.owner(child.pid, "site.yml")["boot"] == "" and not io_lock.ended(other)
