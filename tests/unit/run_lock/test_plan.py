"""The lock's values, which another machine may have written, and the messages that show them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import nested

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan

OWNER = {"user": "alice", "host": "laptop", "playbook": "site.yml", "boot": "ab" * 16, "pid": "4711", "started": "123"}
LOCK = {**OWNER, "since": "2026-11-22 07:29:43", "age": "754"}


@pytest.mark.parametrize(
    "change",
    [
        *({"since": "\n"}, {"host": "\x1b[2J"}, {"playbook": "x" * 101}, {"user": None}, {"user": ["x"]}),
        *({"pid": 0}, {"pid": True}, {"pid": "1; rm"}, {"pid": 1e9}, {"age": -1}, {"age": float("inf")}),
    ],
)
def test_what_is_no_lock(change: dict[str, Any]) -> None:
    assert run_lock_plan.lock(dict(LOCK, pid=4711, more=1)) == LOCK
    with pytest.raises(ValueError, match="a value of the lock is missing or invalid"):
        run_lock_plan.lock(LOCK | change)


JSON = nested(st.none() | st.booleans() | st.integers() | st.floats() | st.text())


@given(JSON | st.dictionaries(st.sampled_from(sorted(LOCK)), JSON).map(LOCK.__or__), st.text())
def test_no_data_raises_another_error_or_reaches_a_terminal(data: Any, name: str) -> None:
    try:
        found = run_lock_plan.lock(data)
    except ValueError:
        found = run_lock_plan.lock(dict(LOCK, user=run_lock_plan.word(name)))
    message = run_lock_plan.refusal(found, OWNER)
    assert message.isascii() and message.isprintable()


def test_a_name_has_a_form_that_a_lock_accepts() -> None:
    word = run_lock_plan.word("J\N{LATIN SMALL LETTER O WITH DIAERESIS}rg\n" + "x" * 500)
    assert word.startswith("J?rg?xxx") and run_lock_plan.lock(dict(LOCK, user=word))["user"] == word


def test_a_run_is_its_process_or_without_a_boot_id_also_its_names() -> None:
    other, renamed = dict(OWNER, started="124"), dict(LOCK, host="laptop.local")
    assert re.fullmatch("[0-9a-f]{8}", run_lock_plan.run_id(OWNER))
    assert run_lock_plan.run_id(OWNER) == run_lock_plan.run_id(renamed) != run_lock_plan.run_id(other)
    assert run_lock_plan.run_id(dict(OWNER, boot="")) != run_lock_plan.run_id(dict(renamed, boot=""))


KILLED = "wait for it to end; if it was killed or laptop was rebooted since, and none of its processes is left, add -e"


@pytest.mark.parametrize(
    ("boot", "fix"),
    [
        ("cd" * 16, f"{KILLED} gb10_break_lock={run_lock_plan.run_id(OWNER)}."),
        ("", f"{KILLED} gb10_break_lock={run_lock_plan.run_id(OWNER)}."),
        (OWNER["boot"], "wait for it to end, or end it: kill 4711."),
    ],
    ids=["another machine or boot", "unknown boot", "same machine"],
)
def test_a_run_is_told_who_has_the_lock_and_what_to_do(boot: str, fix: str) -> None:
    assert run_lock_plan.refusal(LOCK, dict(OWNER, boot=boot)) == (
        "/run/gb10/lock.json: the cluster is locked: alice@laptop runs site.yml (process 4711) since 2026-11-22 "
        f"07:29:43 UTC, for 12 min. Expected: one run at a time. Fix: {fix}"
    )
