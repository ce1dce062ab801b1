"""The role vllm_watchdog on two hosts in check mode: its tasks run, and its settings are those that the program reads."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from run_module import program
from run_playbook import run

from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import io_watch

PLAN = json.loads((ROOT / "tests/unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
PLAY = """\
- hosts: all
  connection: local
  gather_facts: false
  vars:
    gb10_plan: "{{ plan | combine({'node': plan.nodes[groups['all'].index(inventory_hostname)]}) }}"
  tasks:
    - ansible.builtin.include_role: {name: gb10.cluster.vllm_watchdog, public: true}
    - ansible.builtin.copy:
        dest: "{{ playbook_dir }}/{{ inventory_hostname }}.json"
        content: "{{ _vllm_watchdog_files[0].content }}"
      check_mode: false
      when: _vllm_watchdog_mode != 'off'
"""

#: The output of `systemctl show` for a unit that does not exist.
MISSING = "".join(
    f"{line}\\n"
    for line in (
        *("LoadState=not-found", "UnitFileState=", "ActiveState=inactive", "SubState=dead", "Result=success", "MainPID=0", "NRestarts=0"),
        *("InvocationID=", "Job=0", "ExecMainStatus=0", "Environment=", "ExecStopPost=", "ExecMainStartTimestampMonotonic=0"),
    )
)


def play(folder: Path, **variables: Any) -> set[str]:
    """Run the role without a change of this host. Returns the tasks that would change something."""
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    host = f"ansible_become=false ansible_python_interpreter={sys.executable}"
    (folder / "hosts").write_text(f"spark1 {host}\nspark2 {host}\n", encoding="utf-8")
    tools = program(folder / "bin", "systemctl", f"printf '{MISSING}'")
    given = json.dumps({"plan": PLAN, **variables})
    done = run(str(folder / "play.yml"), ["--check", "-i", str(folder / "hosts"), "-e", given], {"PATH": f"{tools}:{os.environ['PATH']}"})
    return done.assert_ok().changed_tasks()


def test_the_settings_are_those_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = play(tmp_path, vllm_watchdog_mode="restart", vllm_watchdog_webhook="https://example.com/planted")
    assert {"Write gb10-watchdog.service, its program and settings", "Write the watchdog's webhook on the head"} <= changed
    head, worker = (json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")) for name in ("spark1", "spark2"))
    assert (head["head"], worker["head"]) == (True, False)
    assert (head["mode"], head["port"], head["restarts_per_hour"]) == ("restart", 8474, 3)
    assert (head["units"], head["follow_unit"]) == (["gb10-ray.service", "gb10-vllm.service"], "gb10-ray.service")
    assert list(head["peers"]) == ["spark2"]
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    assert io_watch.Head(head, "ab" * 32).settings.stall_seconds == 120
    assert io_watch.Worker(worker, "ab" * 32).given["head_address"] == head["head_address"]
    assert "planted" not in json.dumps([head, worker]), "the webhook may contain a secret"


@pytest.mark.parametrize("mode", ["off", False], ids=["quoted", "unquoted"])
def test_off_installs_nothing(tmp_path: Path, mode: Any) -> None:
    assert play(tmp_path, vllm_watchdog_mode=mode) == set()
    assert not (tmp_path / "spark1.json").exists()
