"""One run at a time: takeover, and release by the playbooks after any failure."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from decisions import decide
from repository import ROOT, files, load_yaml, read
from run_playbook import LOCAL, Run, run, run_and_kill

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan

ALICE = {"user": "alice", "host": "laptop", "playbook": "site.yml", "boot": "ab" * 16, "pid": "4711", "started": "123"}
BOB, ENDED = dict(ALICE, user="bob", boot="cd" * 16), dict(ALICE, pid="42")
FREE: dict[str, Any] = {"changed": False, "holder": {}}
FAILED = {"failed": True, "msg": "Missing sudo password"}
LOCKED = "/run/gb10/lock.json: the cluster is locked: "
NODES = {"inventory_hostname": "spark1", "gb10_nodes": ["spark1"]}
RELEASED = {"state": "released"}


def told(owner: dict[str, str], **changes: Any) -> dict[str, Any]:
    return {"holder": {**owner, "since": "2026-11-22 07:29:43", "age": "60", **changes}}


@pytest.mark.parametrize(
    ("given", "check", "facts", "answers", "held", "stop", "problem", "warning"),
    [
        ({}, False, "", [FREE], True, False, "", ""),
        ({}, False, "", [told(ENDED), FREE], True, False, "", ""),
        # Another run took it over at the same time, and has ended too.
        ({}, False, "", [told(ENDED), told(ENDED)], False, True, f"{LOCKED}alice", ""),
        ({}, False, "", [told(BOB)], False, True, f"{LOCKED}bob", ""),
        ({}, False, "", [told(dict(ALICE, user="bob"))], False, True, f"{LOCKED}bob", ""),
        # A head that cannot be queried is not a refusal.
        ({}, False, "", [FAILED], False, False, "Missing sudo password", ""),
        ({}, False, "", [dict(FAILED, refused=True)], False, True, "Missing sudo password", ""),
        ({}, False, "typical", [], False, True, "gb10_plan_offline: typical. Expected: false, because", ""),
        ({}, True, "", [told(BOB)], False, False, f"{LOCKED}bob", f"{LOCKED}bob"),
        (RELEASED, False, "typical", [FREE], False, False, "", ""),
        (RELEASED, False, "", [told(BOB)], False, False, LOCKED, f"The lock of this run was broken: {LOCKED}bob"),
    ],
)
def test_the_action(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    check: bool,
    facts: str,
    answers: list[dict[str, Any]],
    held: bool,
    stop: bool,
    problem: str,
    warning: str,
) -> None:
    monkeypatch.setattr(io_lock, "owner", lambda _pid, _playbook: ALICE)
    monkeypatch.setattr(io_lock, "_process", lambda pid: (ALICE["boot"], "123" if pid == 4711 else ""))
    hosts = {"spark1": {"gb10_plan_offline": facts}}
    result, calls = decide("cluster_lock", given, {}, hosts, answers, NODES, check)
    assert (result["held"], result["stop"], bool(result["problem"])) == (held, stop, bool(problem))
    assert result["problem"].startswith(problem)
    assert [text.partition("@")[0] for text in result.get("warnings", [])] == [warning] * bool(warning)
    assert [call["owner"] for call in calls] == [ALICE] * len(answers)
    assert [call["breaks"] for call in calls[1:]] == [run_lock_plan.run_id(ENDED)] * (len(answers) - 1)


def test_a_head_may_answer_anything() -> None:
    assert decide("cluster_lock", RELEASED, {}, {}, FAILED, NODES)[0] == FAILED
    with pytest.raises(ValueError, match="a value of the lock is missing"):
        decide("cluster_lock", RELEASED, {}, {}, told(BOB, user="\n"), NODES)


STEPS = ROOT / "playbooks/steps"
GATEWAY = next(play for play in load_yaml(read("playbooks/site.yml")) if "gateways" in play["hosts"])["tasks"][0][
    "vars"
]
PLAY = f"""
- hosts: "{{{{ playbook_selected.hosts }}}}"
  vars_files: {STEPS}/cluster.yml
  gather_facts: false
  tasks:
    - import_tasks: lock.yml
      when: not unlocked | default(false)
    - block:
        # Without plans, several clusters would be refused.
        - import_tasks: {STEPS}/planned.yml
          when: playbook_selected.clusters | length == 1
      always:
        - import_tasks: unlock.yml
          when: playbook_gate is not defined or playbook_gate is failed
- hosts: "{{{{ playbook_selected.hosts }}}}"
  vars_files: {STEPS}/cluster.yml
  serial: "{{{{ playbook_selected.sizes }}}}"
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - block:
        - command: "{{{{ command }}}}"
      always:
        - import_tasks: unlock.yml
- hosts: "{{{{ playbook_gateways }}}}"
  vars_files: {STEPS}/cluster.yml
  gather_facts: false
  tasks:
    - vars: {json.dumps(GATEWAY)}
      block:
        - import_tasks: lock.yml
        - name: Gateway
          command: cat {{{{ folder }}}}/lock.json
      always:
        - import_tasks: unlock.yml
"""


#: All hosts are this machine.
HOSTS = {name: {**LOCAL, "folder": f"{{{{ inventory_dir }}}}/{name}"} for name in ("spark1", "spark2")}
CLUSTERS: dict[str, Any] = {
    "gb10_cluster": {"children": {"head": {"hosts": HOSTS}}},
    "gb10_cluster_chat": {"hosts": {"spark1": {}}},
    "gb10_cluster_code": {"hosts": {"spark2": {}}},
    "gateway": {"hosts": {"other": HOSTS["spark1"]}},
}
FOLDER = "'{{ hostvars[item | default(inventory_hostname)].folder }}'"
ONE = ["-e", "gb10_only=chat", "-e"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A playbook with the tasks of the real ones. The locks of the heads are in subfolders."""
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    for name in ("lock.yml", "unlock.yml"):
        tasks = read(f"playbooks/steps/{name}").replace("inputs:", f"inputs:\n      folder: {FOLDER}")
        (tmp_path / name).write_text(tasks, encoding="utf-8")
    (tmp_path / "hosts.json").write_text(json.dumps(CLUSTERS), encoding="utf-8")
    return tmp_path


def done(folder: Path, *arguments: str) -> Run:
    return run(f"{folder}/play.yml", ["-i", f"{folder}/hosts.json", *arguments])


@pytest.mark.slow
def test_a_run_beside_others_and_one_that_was_killed(folder: Path) -> None:
    run_and_kill(f"{folder}/play.yml", ["-i", f"{folder}/hosts.json", *ONE, "command='sleep 300'"], "command")
    (file,) = folder.glob("*/lock.json")
    assert io_lock.ended(io_lock.look(str(file.parent)))
    done(folder, *ONE, "command=true").assert_ok("replaces the lock of a run that has ended: ", " runs play.yml (")
    assert not file.exists()
    file.write_text(json.dumps({"owner": io_lock.owner(os.getpid(), "play.yml")}), encoding="utf-8")
    done(folder, *ONE, "command=true").assert_failed(f"or end it: kill {os.getpid()}")
    done(folder, *ONE, "command=true", "--check").assert_ok(f"runs play.yml (process {os.getpid()})")
    file.write_text(json.dumps({"owner": BOB}), encoding="utf-8")
    done(folder, *ONE, "command=true", "-e", f"gb10_break_lock={run_lock_plan.run_id(BOB)}").assert_ok()
    assert not file.exists()


@pytest.mark.slow
def test_a_head_that_was_not_locked_before_the_plan_is_not_changed(folder: Path) -> None:
    found = done(folder, *ONE, "command=true", "-e", "unlocked=true")
    assert "TASK [command]" not in found.assert_failed("spark1 did not answer when this run locked its cluster").output


@pytest.mark.slow
@pytest.mark.parametrize(("command", "reached"), [("true", 2), ("false", 1)])
def test_a_run_for_two_clusters_gives_all_locks_back(folder: Path, command: str, reached: int) -> None:
    """After an error in the first cluster, neither the second nor the gateway changes. That has a lock of its own."""
    result = done(folder, "-e", f"command={command}")
    assert (result.status == 0, result.output.count("TASK [command]")) == (reached == 2, reached), result.output
    assert ("changed: [other]" in result.output) == (reached == 2), result.output
    assert [*folder.glob("*/lock.json")] == []


def test_no_variable_of_a_play_has_the_name_of_one_in_its_file() -> None:
    """Ansible would use that of the file."""
    shared = set(load_yaml(read("playbooks/steps/cluster.yml")))
    plays = [play for path in files("playbooks/*.yml") for play in load_yaml(read(path)) if "vars_files" in play]
    assert not [play["name"] for play in plays if shared & set(play.get("vars", ()))]


#: Playbooks that do not change a cluster's nodes. The gateway's clients have a lock of their own.
READING = {"access", "discover", "field_report", "gateway_keys", "history", "models", "plan", "status", "verify"}
LOCKING = {
    *("benchmark_all", "benchmark_model", "benchmark_nccl", "golden", "os_update", "prune", "reset", "rollback"),
    *("site", "stop", "switch_model", "upgrade"),
}
IMPORT = "ansible.builtin.import_tasks"


@pytest.mark.parametrize("name", sorted(LOCKING))
def test_a_playbook_that_changes_something_locks_the_cluster(name: str) -> None:
    """Plays on the cluster take the lock first, work in one block, and release the lock in its `always`. Tasks outside
    of the block would run after a failure."""
    plays = [
        play
        for play in load_yaml(read(f"playbooks/{name}.yml"))
        if play.get("hosts") == "{{ playbook_selected.hosts }}"
    ]
    for number, play in enumerate(plays):
        *before, work = play["tasks"]
        assert not set(play) & {"roles", "pre_tasks", "post_tasks"}, play["name"]
        assert [task[IMPORT] for task in before] == ([] if number else ["steps/lock.yml"]), play["name"]
        assert not any("when" in task for task in before), play["name"]
        assert work["block"] and [task[IMPORT] for task in work["always"]] == ["steps/unlock.yml"], play["name"]
    # The next play must not run without the lock: one host that fails ends the run for all.
    if len(plays) > 1:
        block = plays[0]["tasks"][-1]["block"]
        (planned,) = [index for index, task in enumerate(block) if task.get(IMPORT) == "steps/planned.yml"]
        assert all(task["any_errors_fatal"] for task in block[planned + 1 :])


def test_reading_playbooks_lock_nothing_but_a_measurement_does() -> None:
    """Before its first role, and whatever happens then. All tags reach the lock."""
    assert not any("lock.yml" in read(f"playbooks/{name}.yml") for name in READING)
    assert {Path(path).stem for path in files("playbooks/*.yml")} == READING | LOCKING
    _plan, lock, work = load_yaml(read("playbooks/steps/measure.yml"))
    assert (lock[IMPORT], lock["vars"]) == ("lock.yml", {"playbook_lock_must": True})
    assert [task[IMPORT] for task in work["always"]] == ["unlock.yml"]
    steps = load_yaml(read("playbooks/steps/lock.yml")) + load_yaml(read("playbooks/steps/unlock.yml"))
    assert {task["tags"] for task in steps} == {"always"}
