"""Run playbooks as a user does, and parse their output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repository import ROOT

# On a terminal, the callback leaves out the numbers that are 0 after `changed`.
_RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\b", re.MULTILINE)
# Molecule forces colors on all child processes.
PLAIN = {
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_NOCOLOR": "1",
}
# Tests read the names of tasks, and the recap.
PLAIN["GB10_ANSWER_ONLY"] = "0"


@dataclass(frozen=True)
class Run:
    """A finished run of ansible-playbook."""

    status: int
    output: str

    @property
    def changed(self) -> Mapping[str, int]:
        """Return the number of changed tasks by host."""
        return {host: int(changed) for host, changed in _RECAP.findall(self.output)}

    def changed_tasks(self) -> set[str]:
        """Return the names, without role, of the tasks that changed any host."""
        tasks = re.split(r"^TASK \[", self.output, flags=re.MULTILINE)[1:]
        return {
            task.split("]", 1)[0].rsplit(" : ", 1)[-1] for task in tasks if re.search(r"^changed: ", task, re.MULTILINE)
        }

    def shown(self, task: str) -> list[str]:
        """Return the lines that a task printed with gb10.cluster.show."""
        # A play may have the same name.
        banner = re.search(rf"^TASK \[(?:\S+ : )?{re.escape(task)}\] .*\n", self.output, re.MULTILINE)
        assert banner, self.output
        return [line.strip() for line in self.output[banner.end() :].partition("\nok: ")[0].splitlines()]

    def assert_ok(self, *words: str) -> Run:
        """Fail with the whole output if the playbook failed, or if the output lacks one of the texts."""
        assert self.status == 0, self.output
        return self._assert_shown(words)

    def assert_failed(self, *words: str) -> Run:
        """Fail with the whole output if the playbook succeeded, or if the output lacks one of the texts."""
        assert self.status != 0, self.output
        return self._assert_shown(words)

    def assert_unchanged(self, *words: str) -> Run:
        """Fail with the names of the tasks if anything changed, or if the output lacks one of the texts."""
        assert self.changed_tasks() == set(), self.output
        assert set(self.assert_ok(*words).changed.values()) == {0}, self.output
        return self

    def _assert_shown(self, words: Sequence[str]) -> Run:
        missing = [word for word in words if word not in self.output]
        assert missing == [], self.output
        return self


def command(playbook: str, arguments: Sequence[str]) -> list[str]:
    """Return the argv of one of the checkout's playbooks."""
    return [str(Path(sys.executable).with_name("ansible-playbook")), str(ROOT / playbook), *arguments]


def run(playbook: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """Run a playbook to its end."""
    result = subprocess.run(
        command(playbook, arguments),
        cwd=ROOT,
        env=os.environ | PLAIN | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Run(result.returncode, result.stdout)


#: Variables of a host that is this machine, as this user.
LOCAL = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}


def run_plays(
    plays: Sequence[Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Any]], folder: Path, *arguments: str
) -> Run:
    """Run plays, which are written into a folder, on hosts with these variables."""
    for name, data in {"play.yml": plays, "hosts.json": {"all": {"hosts": hosts}}}.items():
        (folder / name).write_text(json.dumps(data), encoding="utf-8")
    return run(str(folder / "play.yml"), ["-i", str(folder / "hosts.json"), *arguments])


def run_and_kill(
    playbook: str, arguments: Sequence[str], at_task: str, after: float = 0, until: Callable[[], bool] = lambda: True
) -> str:
    """Kill a playbook and its forks with SIGKILL, `after` seconds after it announces a task, and as soon as `until`
    holds. Returns its output.

    Fails if the playbook never announces that task.
    """
    process = subprocess.Popen(
        command(playbook, arguments),
        cwd=ROOT,
        # Otherwise a task with a condition announces itself only with its first result.
        env=os.environ | PLAIN | {"ANSIBLE_DISPLAY_SKIPPED_HOSTS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output = ""
    assert process.stdout is not None
    for line in process.stdout:
        output += line
        if line.startswith("TASK [") and at_task in line:
            time.sleep(after)
            while process.poll() is None and not until():
                time.sleep(0.2)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return output
    raise AssertionError(f"the playbook ended without the task {at_task!r}:\n{output}")
