"""One run at a time: validation of the lock, takeover, and release by the playbooks after any failure."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import nested
from repository import ROOT, files, load_yaml, read
from run_module import run_module

from ansible_collections.gb10.cluster.plugins.action import cluster_lock as action_plugin
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock.plan import Lock, LockError, Owner

ALICE = Owner("alice", "laptop", "site.yml", "ab" * 16, 4711, "123")
BOB = Owner("bob", "desk", "stop.yml", "cd" * 16, 42, "7")
LOCK = Lock("3f9a2c1e", "2026-11-22 07:29:43", 100.5, ALICE)


def changed(**values: Any) -> dict[str, Any]:
    entry = dataclasses.asdict(LOCK)
    entry["owner"] |= {name: value for name, value in values.items() if name in entry["owner"]}
    return entry | {name: value for name, value in values.items() if name not in entry["owner"]}


@pytest.mark.parametrize(
    "entry",
    [
        changed(id="3f9a2c1e; rm"),
        changed(since="\n"),
        changed(taken=True),
        changed(taken=float("nan")),
        changed(taken=1e400),
        changed(owner=None),
        changed(more=1),
        changed(host="\x1b[2J"),
        changed(playbook="x" * 101),
        changed(pid=0),
        changed(pid=True),
        changed(pid="1"),
        changed(started="\n"),
        [],
        None,
        # Other texts.
        "[" * 4000,
        " " * 5000,
        "{",
        "",
    ],
)
def test_what_is_no_lock(entry: Any) -> None:
    with pytest.raises(LockError):
        run_lock_plan.parse(entry if isinstance(entry, str) else json.dumps(entry))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = nested(SCALARS)
FIELDS = st.sampled_from(["id", "since", "taken", "owner", "user", "host", "playbook", "boot", "pid", "started"])


@given(
    st.text()
    | JSON.map(json.dumps)
    | st.tuples(FIELDS, JSON).map(lambda field: json.dumps(changed(**{field[0]: field[1]})))
)
def test_no_text_raises_anything_but_its_own_error(text: str) -> None:
    try:
        found = run_lock_plan.parse(text)
    except LockError as error:
        assert str(error).isprintable()
    else:
        assert run_lock_plan.described(found).isprintable()
        assert run_lock_plan.refusal(found, 1.0, ALICE).isascii()


@given(st.text())
def test_every_name_can_stand_in_a_lock(name: str) -> None:
    entry = dataclasses.replace(LOCK, owner=dataclasses.replace(ALICE, user=run_lock_plan.word(name)))
    assert run_lock_plan.parse(run_lock_plan.text(entry)) == entry


@pytest.mark.parametrize(
    ("boot", "started", "expected"),
    [
        (ALICE.boot, "", True),
        (ALICE.boot, "124", True),
        (ALICE.boot, "123", False),
        (BOB.boot, "", False),
        ("", "", False),
    ],
)
def test_only_the_same_machine_knows_that_a_run_has_ended(boot: str, started: str, expected: bool) -> None:
    assert run_lock_plan.ended(ALICE, boot, started) is expected
    assert run_lock_plan.ended(dataclasses.replace(ALICE, boot=""), "", started) is False


#: The same machine has another boot now. It cannot verify that no other machine has its name.
REBOOTED = dataclasses.replace(ALICE, boot=BOB.boot, pid=12)


@pytest.mark.parametrize(
    ("mine", "fix"),
    [
        (BOB, "if it was killed and none of its processes is left, add -e gb10_break_lock=3f9a2c1e."),
        (ALICE, "wait for it to end, or end it: kill 4711."),
        (
            REBOOTED,
            "if laptop is this machine and was rebooted since, that run has ended: add -e "
            "gb10_break_lock=3f9a2c1e; otherwise wait for it to end.",
        ),
    ],
    ids=["of another machine", "of the same machine", "after a reboot"],
)
def test_a_run_is_told_who_has_the_lock_and_what_to_do(mine: Owner, fix: str) -> None:
    said = run_lock_plan.refusal(LOCK, 754.0, mine)
    found = (
        "1 problem found; nothing was changed.\n  1. /run/gb10/lock.json: the cluster is locked: alice@laptop runs "
        "site.yml (process 4711) since 2026-11-22 07:29:43 UTC, for 12 min. Expected: one run at a time. Fix: "
    )
    assert said.startswith(found) and said.endswith(fix)
    assert ("kill 4711" in said) is (mine is ALICE)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "gb10")


def test_a_lock_is_held_by_one(folder: str) -> None:
    assert io_lock.look(folder) is None
    held, former = io_lock.hold(folder, ALICE, "")
    assert (held.owner, former, io_lock.look(folder)) == (ALICE, None, held)
    assert {path.name: path.stat().st_mode & 0o777 for path in [Path(folder), *Path(folder).iterdir()]} == {
        "gb10": 0o700,
        "lock.json": 0o600,
    }
    assert io_lock.hold(folder, ALICE, "") == (held, None), "a second call returns the same"
    assert io_lock.hold(folder, BOB, "") == (held, None)
    assert io_lock.hold(folder, BOB, "00000000") == (held, None), "another lock's id breaks nothing"
    assert io_lock.release(folder, BOB) == held
    broken, former = io_lock.hold(folder, BOB, held.id)
    assert (broken.owner, former) == (BOB, held)
    assert io_lock.release(folder, ALICE) == broken, "a broken lock is not released"
    assert io_lock.release(folder, BOB) is None
    assert io_lock.look(folder) is None
    assert io_lock.release(folder, BOB) is None


def test_of_many_at_once_one_has_it(folder: str) -> None:
    owners = [dataclasses.replace(ALICE, pid=number) for number in range(1, 17)]
    with ThreadPoolExecutor(len(owners)) as pool:
        found = list(pool.map(lambda owner: io_lock.hold(folder, owner, "")[0], owners))
    assert len(set(found)) == 1


def test_what_others_could_have_put_there_is_not_believed(folder: str, tmp_path: Path) -> None:
    place = Path(folder)
    place.mkdir(mode=0o700)
    for content in ("", "{}", "x" * 100_000):
        (place / "lock.json").write_text(content, encoding="utf-8")
        with pytest.raises(LockError):
            io_lock.hold(folder, ALICE, "")
    (place / "lock.json").unlink()
    os.mkfifo(place / "lock.json")
    with pytest.raises(LockError, match="not a regular file"):
        io_lock.look(folder)
    (place / "lock.json").unlink()
    (tmp_path / "elsewhere").write_text(run_lock_plan.text(LOCK), encoding="utf-8")
    (place / "lock.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        io_lock.hold(folder, BOB, "")
    (place / "lock.json").unlink()
    (place / "lock.json.new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        io_lock.hold(folder, BOB, "")
    assert (tmp_path / "elsewhere").read_text(encoding="utf-8") == run_lock_plan.text(LOCK)
    place.chmod(0o770)
    with pytest.raises(LockError, match="other users may write"):
        io_lock.hold(folder, ALICE, "")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(LockError, match="is not a folder"):
        io_lock.hold(str(tmp_path / "link"), ALICE, "")


def module(folder: str, owner: Owner, check: bool = False, **given: Any) -> dict[str, Any]:
    return run_module("cluster_lock", {"folder": folder, "owner": dataclasses.asdict(owner), **given}, check=check)


#: Calls of the module after each other: the run, what differs in the call, and parts of the answer.
CALLS: list[tuple[Owner, dict[str, Any], dict[str, Any]]] = [
    (ALICE, {"check": True}, {"held": True}),
    (ALICE, {}, {"changed": False, "held": True, "holder": {}, "former": {}}),
    (BOB, {}, {"held": False}),
    (BOB, {"check": True}, {"held": False}),
    (ALICE, {"check": True, "state": "released"}, {"holder": {}}),
    (ALICE, {}, {"held": True}),
    (ALICE, {"state": "released"}, {"holder": {}}),
    (BOB, {}, {"held": True}),
]


def test_the_module(folder: str) -> None:
    for number, (owner, more, expected) in enumerate(CALLS):
        answer = module(folder, owner, **more)
        assert {name: answer[name] for name in expected} == expected, number
        assert Path(folder).exists() is (number > 0), "check mode takes nothing"
        if not answer["held"] and answer["holder"]:
            assert (answer["holder"]["owner"]["user"], answer["holder"]["age"] < 100) == ("alice", True)
            assert module(folder, BOB, check=True, breaks=answer["holder"]["id"])["held"] is True
    Path(folder, "lock.json").write_text("{", encoding="utf-8")
    assert "it is not a lock of this collection: it is not JSON" in module(folder, BOB)["msg"]


Answer = dict[str, Any]


def acted(
    monkeypatch: pytest.MonkeyPatch, answers: list[Answer], check: bool = False, hosts: Any = None, **given: Any
) -> tuple[Answer, list[Answer]]:
    """Return the action's result and its module calls. The action regards this process as ended."""
    action, asked = object.__new__(action_plugin.ActionModule), []

    def answer(module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        assert task_vars == variables
        asked.append(dict(module_args))
        return answers[min(len(asked), len(answers)) - 1]

    variables = {"inventory_hostname": "spark1", "gb10_nodes": ["spark1"], "hostvars": hosts or {"spark1": {}}}
    task = type("Task", (), {"args": given, "check_mode": check})
    monkeypatch.setattr(action_plugin.ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setattr(action_plugin.io_lock, "owner", lambda _pid, _playbook: ALICE)
    monkeypatch.setattr(action_plugin.io_lock, "started", lambda pid: "123" if pid == ALICE.pid else "")
    monkeypatch.setattr(action, "_execute_module", answer, raising=False)
    monkeypatch.setattr(action, "_task", task, raising=False)
    monkeypatch.setattr(
        action, "_templar", type("Templar", (), {"template": staticmethod(lambda value: value)}), raising=False
    )
    return action.run(None, variables), asked


def told(owner: Owner, /, **changes: Any) -> dict[str, Any]:
    holder = {**dataclasses.asdict(dataclasses.replace(LOCK, owner=owner)), "age": 60.0, **changes}
    return {"changed": False, "held": False, "former": {}, "holder": holder}


FREE = {"changed": False, "held": True, "former": {}, "holder": {}}


def test_the_action_takes_over_what_its_own_machine_left(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = acted(monkeypatch, [FREE])
    assert (result["held"], result["refused"], result["problem"], len(asked)) == (True, False, "", 1)
    assert asked[0]["owner"] == dataclasses.asdict(ALICE)
    ended = dataclasses.replace(BOB, boot=ALICE.boot)
    result, asked = acted(monkeypatch, [told(ended), FREE])
    assert (result["held"], [question.get("breaks", "") for question in asked]) == (True, ["", LOCK.id])
    for others in (BOB, dataclasses.replace(ALICE, playbook="stop.yml")):
        result, asked = acted(monkeypatch, [told(others)])
        assert (result["held"], result["refused"], len(asked), "failed" in result) == (False, True, 1, False)
        assert f"{others.user}@{others.host} runs {others.playbook}" in result["problem"]
    result, asked = acted(monkeypatch, [told(ended)])
    assert (result["refused"], len(asked)) == (True, 2), "other runs take it at the same time"


def test_the_action_in_check_mode_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _asked = acted(monkeypatch, [told(BOB)], check=True)
    assert (result["held"], result["stop"], result["warnings"]) == (False, False, [result["problem"]])


def test_a_run_that_changes_nodes_refuses_typical_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = acted(monkeypatch, [FREE], hosts={"spark1": {"gb10_plan_offline": "typical"}})
    problem = "gb10_plan_offline: typical. Expected: false, because this playbook changes nodes. Fix: "
    assert (result["stop"], result["problem"][: len(problem)], asked) == (True, problem, [])


@pytest.mark.parametrize(
    "changes", [{"age": "x"}, {"age": True}, {"age": float("inf")}, {"id": "\n"}, {"owner": 7}, {"more": 1}]
)
def test_the_action_does_not_believe_the_head(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    result, _asked = acted(monkeypatch, [told(BOB, **changes)])
    assert (result["refused"], "it is not a lock of this collection" in result["problem"]) == (True, True)
    result, _asked = acted(monkeypatch, [told(BOB, **changes)], state="released")
    assert result["failed"] is True


@pytest.mark.parametrize("refused", [False, True])
def test_a_head_that_cannot_be_asked_is_not_a_refusal(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    failed = {"failed": True, "msg": "Missing sudo password", **({"refused": True} if refused else {})}
    result, _asked = acted(monkeypatch, [failed])
    assert result == {
        "changed": False,
        "held": False,
        "refused": refused,
        "stop": refused,
        "problem": "Missing sudo password",
        "holder": {},
    }
    assert acted(monkeypatch, [failed], state="released")[0] == failed


def test_a_lock_that_was_broken_is_told_when_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _asked = acted(monkeypatch, [told(BOB)], state="released")
    assert result["warnings"] == [
        f"The lock of this run was broken: {run_lock_plan.described(dataclasses.replace(LOCK, owner=BOB))}."
    ]


def test_this_process() -> None:
    mine = io_lock.owner(os.getpid(), "site.yml")
    assert run_lock_plan.lock(dataclasses.asdict(dataclasses.replace(LOCK, owner=mine))).owner == mine
    assert mine.started == io_lock.started(os.getpid()) != ""
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert io_lock.started(child.pid) == "", "an ended process that its parent has not reaped"
    child.communicate()
    assert io_lock.started(child.pid) == ""


PLAY = """
- hosts: "{{{{ playbook_selected.hosts }}}}"
  vars_files: {tasks}/cluster.yml
  gather_facts: false
  module_defaults: &folder
    gb10.cluster.cluster_lock:
      folder: "{{{{ hostvars[item | default(inventory_hostname)].folder }}}}"
  tasks:
    - import_tasks: {tasks}/lock.yml
      when: not unlocked | default(false)
    - block:
        # Without plans, several clusters would be refused.
        - import_tasks: {tasks}/planned.yml
          when: playbook_selected.clusters | length == 1
      always:
        - import_tasks: {tasks}/unlock.yml
          when: playbook_gate is not defined or playbook_gate is failed
- hosts: "{{{{ playbook_selected.hosts }}}}"
  vars_files: {tasks}/cluster.yml
  serial: "{{{{ playbook_selected.sizes }}}}"
  gather_facts: false
  any_errors_fatal: true
  module_defaults: *folder
  tasks:
    - block:
        - command: "{{{{ command }}}}"
      always:
        - import_tasks: {tasks}/unlock.yml
"""


class Runs:
    """Runs of one playbook on this machine, which is also the head, with the task files of the real playbooks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.playbook, self.running = folder / "lock", folder / "play.yml", list[subprocess.Popen[str]]()
        self.playbook.write_text(PLAY.format(tasks=ROOT / "playbooks/steps"), encoding="utf-8")

    def inventory(self) -> dict[str, Any]:
        host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "folder": str(self.folder)}
        return {"gb10_cluster": {"children": {"head": {"hosts": {"spark1": host}}}}}

    def begin(self, command: str, *arguments: str) -> subprocess.Popen[str]:
        given = json.dumps({"command": command, "ansible_become": False})
        inventory = self.playbook.with_name("hosts.yml")
        inventory.write_text(json.dumps(self.inventory()), encoding="utf-8")
        argv = [
            Path(sys.executable).with_name("ansible-playbook"),
            self.playbook,
            "-i",
            inventory,
            "--extra-vars",
            given,
            *arguments,
        ]
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def done(self, command: str, *arguments: str) -> tuple[int, str]:
        process = self.begin(command, *arguments)
        output = process.communicate(timeout=120)[0]
        return process.returncode, output.replace("\\n", "\n")

    def locked(self) -> bool:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (self.folder / "lock.json").exists():
            time.sleep(0.05)
        return (self.folder / "lock.json").exists()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    for process in made.running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_two_runs_at_once_and_one_that_was_killed(runs: Runs) -> None:
    first = runs.begin("sleep 300")
    assert runs.locked()
    status, output = runs.done("true")
    assert status != 0
    assert f"runs play.yml (process {first.pid})" in output
    assert f"or end it: kill {first.pid}" in output
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert (runs.folder / "lock.json").exists()
    status, output = runs.done("true")
    replaced = f"replaces the lock of a run that has ended: {run_lock_plan.word(io_lock.owner(1, 'x').user)}@"
    assert (status, replaced in output) == (0, True), output
    assert not (runs.folder / "lock.json").exists()


def test_a_head_that_was_not_locked_before_the_plan_is_not_changed(runs: Runs) -> None:
    status, output = runs.done("true", "-e", "unlocked=true")
    assert (status != 0, "TASK [command]" in output) == (True, False), output
    assert "spark1 did not answer when this run locked its cluster" in output


class TwoClusters(Runs):
    """Runs for two clusters of one node each, both on this machine, each with a lock of its own."""

    def inventory(self) -> dict[str, Any]:
        made = super().inventory()
        hosts = made["gb10_cluster"]["children"]["head"]["hosts"]
        hosts["spark2"] = {**hosts["spark1"], "folder": str(self.folder.with_name("second"))}
        return {**made, "gb10_cluster_chat": {"hosts": {"spark1": {}}}, "gb10_cluster_code": {"hosts": {"spark2": {}}}}


@pytest.mark.parametrize(("command", "reached"), [("true", 2), ("false", 1)])
def test_a_run_for_two_clusters_gives_both_locks_back(tmp_path: Path, command: str, reached: int) -> None:
    runs = TwoClusters(tmp_path)
    status, output = runs.done(command)
    assert (status == 0) == (reached == 2), output
    assert output.count("TASK [command]") == reached, "after an error in the first cluster, the second does not change"
    assert [path.name for folder in ("lock", "second") for path in (tmp_path / folder).iterdir()] == []


class OtherHost(Runs):
    """A run of the gateway's play of site.yml on a host outside of the cluster, with a command in place of the role."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        play = next(play for play in load_yaml(read("playbooks/site.yml")) if "gateways" in play["hosts"])
        steps = ROOT / "playbooks/steps"
        work = [{"command": "{{ command }}"}, {"command": f"cat {self.folder}/lock.json"}]
        block = {"block": work, "always": [{"import_tasks": f"{steps}/unlock.yml"}]}
        tasks = folder / "gateway.yml"
        tasks.write_text(json.dumps([{"import_tasks": f"{steps}/lock.yml"}, block]), encoding="utf-8")
        defaults = {"gb10.cluster.cluster_lock": {"folder": "{{ folder }}"}}
        task = {**play["tasks"][0], "ansible.builtin.import_tasks": str(tasks)}
        play |= {"vars_files": str(steps / "cluster.yml"), "module_defaults": defaults, "tasks": [task]}
        self.playbook.write_text(json.dumps([play]), encoding="utf-8")

    def inventory(self) -> dict[str, Any]:
        made = super().inventory()
        return {**made, "gateway": {"hosts": {"other": made["gb10_cluster"]["children"]["head"]["hosts"]["spark1"]}}}


def test_a_gateway_outside_of_the_cluster_is_locked_on_its_own_host(tmp_path: Path) -> None:
    runs = OtherHost(tmp_path)
    status, output = runs.done("true")
    assert status == 0 and "changed: [other]" in output, output
    assert list(runs.folder.iterdir()) == []


@pytest.mark.parametrize("playbook", files("playbooks/*.yml"))
def test_no_variable_of_a_play_has_the_name_of_one_in_its_file(playbook: str) -> None:
    """Ansible would use that of the file."""
    shared = load_yaml(read("playbooks/steps/cluster.yml"))
    for play in load_yaml(read(playbook)):
        assert not ("vars_files" in play and set(play.get("vars", {})) & set(shared)), play["name"]


def test_the_lock_of_another_controller_is_broken_by_its_id_alone(runs: Runs) -> None:
    lock, _former = io_lock.hold(str(runs.folder), BOB, "")
    assert runs.done("true", "-e", f"gb10_break_lock={lock.id}")[0] == 0
    assert io_lock.look(str(runs.folder)) is None


#: Playbooks that do not change a cluster's nodes. The gateway's clients have a lock of their own.
READING = {"access", "discover", "field_report", "gateway_keys", "history", "models", "plan"}
READING |= {"status", "verify"}
LOCKING = {"benchmark_all", "benchmark_model", "benchmark_nccl", "golden", "prune", "reset", "rollback", "site", "stop"}
LOCKING |= {"os_update", "switch_model", "upgrade"}


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


def test_reading_playbooks_lock_nothing() -> None:
    assert not any("lock.yml" in read(f"playbooks/{name}.yml") for name in READING)
    assert {Path(path).stem for path in files("playbooks/*.yml")} == READING | LOCKING


def test_a_measurement_for_a_report_locks_the_cluster() -> None:
    """Before its first role, and whatever happens then. The report itself needs no lock."""
    _plan, lock, work = load_yaml(read("playbooks/steps/measure.yml"))
    assert (lock["ansible.builtin.import_tasks"], lock["vars"]) == ("lock.yml", {"playbook_lock_must": True})
    assert [task["ansible.builtin.import_tasks"] for task in work["always"]] == ["unlock.yml"]


def test_tags_reach_the_lock() -> None:
    for name in ("lock", "unlock"):
        assert all(task["tags"] == "always" for task in load_yaml(read(f"playbooks/steps/{name}.yml")))
