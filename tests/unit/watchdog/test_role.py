"""The role vllm_watchdog on two hosts, with a fake systemctl: in check mode, into folders, again, and after a killed
run."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from overlaid import interpreter, permitted
from packed import packed
from rendered_units import SETTINGS, planned
from repository import ROOT
from run_module import program
from run_playbook import Run, run
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.service import keys
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import io_watch

PLAN = json.loads((ROOT / "tests/unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
PLAY = """\
- hosts: all
  connection: local
  gather_facts: false
  environment:
    PATH: "{{ playbook_dir }}/{{ inventory_hostname }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}"
  vars:
    gb10_plan: "{{ plan | combine({'node': plan.nodes[groups['all'].index(inventory_hostname)]}) }}"
    gb10_inputs: {settings: "{{ settings }}"}
  tasks:
    - ansible.builtin.include_role: {name: gb10.cluster.vllm_watchdog}
"""

HOSTS = ("spark1", "spark2")
#: Prints the file show, and records commands that would change systemd's state.
SYSTEMCTL = """case " $*" in
  *" show "*) cat "${0%/bin/*}/show" ;;
  *" is-enabled "*) echo enabled ;;
  *) echo "$@" >>"${0%/bin/*}/calls" ;;
esac"""


def show(folder: Path, load: str, active: str, inputs: str = "") -> None:
    """Set the output of `systemctl show` on a host; ``inputs`` are those of the unit that systemd is about to start."""
    (folder / "show").write_text(
        f"LoadState={load}\nUnitFileState=enabled\nActiveState={active}\nSubState=dead\nResult=success\nMainPID=0\nNRestarts=0\nInvocationID=\n"
        f"Job=0\nExecMainStatus=0\nEnvironment=GB10_INPUTS={inputs}\nExecStopPost=\nExecMainStartTimestampMonotonic=0\n",
        encoding="utf-8",
    )


def play(folder: Path, *arguments: str, hosts: dict[str, str], **variables: Any) -> Run:
    """Run the role on two hosts, which are this machine, each with these variables."""
    for name in HOSTS:
        (folder / name).mkdir(exist_ok=True)
        program(folder / name / "bin", "systemctl", SYSTEMCTL)
        if not (folder / name / "show").exists():
            show(folder / name, "not-found", "inactive")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    lines = [f"    {name}: {{ansible_become: false, {given}}}\n" for name, given in hosts.items()]
    (folder / "hosts.yml").write_text("".join(["all:\n  hosts:\n", *lines]), encoding="utf-8")
    extra = json.dumps({"plan": PLAN, "settings": {**SETTINGS, **variables}, **variables})
    return run(str(folder / "play.yml"), ["-i", str(folder / "hosts.yml"), "-e", extra, *arguments]).assert_ok()


def test_the_settings_are_those_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [fact({**PLAN, "node": node}) for node in PLAN["nodes"]]
    services = [planned(plan, "gb10-watchdog", vllm_watchdog_mode="restart") for plan in plans]
    head, worker = (json.loads(service["files"][0]["content"]) for service in services)
    assert (head["head"], worker["head"]) == (True, False)
    assert (head["mode"], head["port"], head["restarts_per_hour"]) == ("restart", 8474, 3)
    assert (head["units"], head["follow_unit"]) == (["gb10-ray.service", "gb10-vllm.service"], "gb10-ray.service")
    assert list(head["peers"]) == ["spark2"]
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    assert io_watch.Head(head, "ab" * 32).settings.stall_seconds == 120
    assert io_watch.Worker(worker, "ab" * 32).given["head_address"] == head["head_address"]


START = "Run gb10-watchdog.service"


def inputs(folder: Path) -> str:
    """Return the digest in an installed unit."""
    (found,) = re.findall(
        r"^Environment=GB10_INPUTS=([0-9a-f]{64})$",
        (folder / "etc/systemd/system/gb10-watchdog.service").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return str(found)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the token belongs to root")
def test_the_role_installs_and_starts_the_watchdog_once(tmp_path: Path) -> None:
    if not permitted(tmp_path / "probe"):
        pytest.skip("this machine does not permit overlay mounts")
    for name in HOSTS:
        (tmp_path / name / "etc/gb10").mkdir(parents=True)
        (tmp_path / name / "etc/gb10/watchdog.token").write_text("ab" * 32, encoding="utf-8")
        show(tmp_path / name, "loaded", "inactive")
    # Each host has its own /etc and /usr/local/lib.
    pythons = {name: f"ansible_python_interpreter: {interpreter(tmp_path / name)}" for name in HOSTS}
    webhook = "https://example.com/planted"
    play_again = partial(play, tmp_path, hosts=pythons, vllm_watchdog_webhook=webhook)
    done = play_again("--diff")
    assert {"Write the watchdog's webhook on the head", START} <= done.changed_tasks()
    assert "planted" not in done.output, "the webhook may contain a secret"
    secret = (tmp_path / HOSTS[0] / "etc/gb10/message.secret").read_text(encoding="utf-8")
    for name, before in (HOSTS, HOSTS[::-1]):
        found = {path: tmp_path / name / path.lstrip("/") for path in (paths.WATCHDOG_KEY, paths.RECORDER_KEYS)}
        texts = {path: file.read_text(encoding="utf-8") for path, file in found.items()}
        assert texts == keys.files(secret, name, before)
        assert {file.stat().st_mode & 0o777 for file in found.values()} == {0o600}
        assert not any(line in done.output for text in (secret, *texts.values()) for line in text.splitlines())
        assert not (tmp_path / name / "etc/gb10/watchdog.token").exists()
    assert not (tmp_path / HOSTS[1] / "etc/gb10/message.secret").exists()
    for name in HOSTS:
        assert (tmp_path / name / "usr/local/lib/gb10-watchdog").read_bytes() == packed("watchdog")
        assert "--no-block restart gb10-watchdog.service" in (tmp_path / name / "calls").read_text(encoding="utf-8")
        show(tmp_path / name, "loaded", "activating", inputs(tmp_path / name))
    play_again().assert_unchanged()
    # A run was killed between the files and the restart: the files are new, and the process has the former inputs.
    show(tmp_path / HOSTS[1], "loaded", "activating", "0" * 64)
    assert play_again().changed_tasks() == {START}


def test_another_program_needs_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned(fact({}), "gb10-watchdog")["unit"]["inputs"]
    monkeypatch.setitem(paths.PROGRAMS, "watchdog", paths.PROGRAMS["gates"])
    assert planned(fact({}), "gb10-watchdog")["unit"]["inputs"] != before


def test_off_installs_nothing_with_and_without_quotes(tmp_path: Path) -> None:
    python = f"ansible_python_interpreter: {sys.executable}"
    hosts = {"spark1": f"{python}, vllm_watchdog_mode: 'off'", "spark2": f"{python}, vllm_watchdog_mode: off"}
    done = play(tmp_path, "--check", hosts=hosts).assert_unchanged()
    assert START not in done.output
