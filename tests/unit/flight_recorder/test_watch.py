"""playbooks/status.yml with status_watch: on a terminal, without one, and with a node that does not answer."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants, context
from repository import ROOT
from run_playbook import command, run

from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import cluster_watch

PLAYBOOK = "playbooks/status.yml"
HOSTS = f"""
all:
  children:
    gb10_cluster:
      vars: {{ansible_become: false, ansible_python_interpreter: {sys.executable}, gb10_model: org/tiny}}
      children:
        head: {{hosts: {{spark1: {{ansible_connection: local}}}}}}
        worker: {{hosts: {{spark2: {{ansible_host: 127.0.0.1, ansible_port: 1, ansible_ssh_executable: /bin/false}}}}}}
"""
#: The first place of a frame, and the keys that draw at once and that end it.
HOME, ENTER, CTRL_C = "\x1b[H", "\r", "\x03"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "hosts.yml").write_text(HOSTS, encoding="utf-8")
    return ["-i", str(tmp_path / "hosts.yml"), "-e", "status_watch=3"]


def environment() -> dict[str, str]:
    return os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "TERM": "xterm", "NO_COLOR": "1"}


def until(holds: Callable[[], bool], read: Callable[[], None], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        read()


@pytest.mark.slow
def test_ctrl_c_ends_it_and_the_terminal_stays_usable(arguments: list[str]) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        argv = command(PLAYBOOK, arguments)
        os.execvpe(argv[0], argv, environment())
    said = ""

    def read() -> None:
        nonlocal said
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 65536).decode(errors="replace")

    def prompts() -> bool:
        """Return whether Ctrl-C is a key now. It is a signal in the milliseconds between two prompts."""
        return not termios.tcgetattr(terminal)[3] & termios.ISIG

    try:
        until(lambda: "spark2: does not answer: " in said, read)
        count = said.count(HOME)
        until(prompts, read)
        os.write(terminal, ENTER.encode())
        until(lambda: said.count(HOME) > count + 1, read)
        until(prompts, read)
        os.write(terminal, CTRL_C.encode())
        until(lambda: re.search(r"watched 2 nodes for \d+ s", said) is not None, read)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    except BaseException:
        # With its forks; the child leads a session of its own.
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(terminal)
    # No other screen, no hidden cursor, and no frame that scrolls: 23 lines fit a terminal of 24.
    assert not re.search(r"\x1b\[\?(1049|25)", said)
    frames = said.split(HOME)[1:]
    assert max(frame.count("\n") for frame in frames[:-1]) <= 24
    assert "tiny   " in frames[-1] and re.search(r"\nspark1 .*\n", frames[-1].replace("\x1b[K", "").replace("\r", ""))


@pytest.mark.slow
def test_without_a_terminal_the_frames_follow_each_other(arguments: list[str]) -> None:
    # A pipe that got blocks of 8 KB would have the first frame after 16 intervals.
    with subprocess.Popen(
        command(PLAYBOOK, [*arguments, "-e", "status_watch=5"]),
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        lines: list[str] = []
        try:
            until(
                lambda: sum(line.startswith("tiny   ") for line in lines) > 1,
                lambda: lines.append(process.stdout.readline()),  # type: ignore[union-attr]
            )
        finally:
            os.killpg(process.pid, signal.SIGTERM)
    assert "\x1b" not in "".join(lines)


#: Variables and options that are refused, and the problem.
REFUSED = {
    "no interval": (
        ["-e", "status_watch=0"],
        "status_watch: 0. Expected: 1 to 600 seconds. Fix: use status_watch=5.",
    ),
    "few forks": (
        ["--forks=1"],
        "status_watch: Ansible has 1 forks for 2 nodes. Expected: one for each node. Fix: add --forks=2.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("more", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_watch_that_cannot_work_is_refused(arguments: list[str], more: list[str], problem: str) -> None:
    run(PLAYBOOK, [*arguments, *more]).assert_failed(problem)


def test_a_node_is_asked_at_each_interval_until_the_first_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > 16:
            (tmp_path / "gb10-watch-end").touch()

    def answer(_command: str) -> dict[str, Any]:
        asked.append(clock[0])
        return {"rc": 0, "stdout": f"sample {len(asked)}", "stderr": ""}

    monkeypatch.setattr(cluster_watch, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(context, "CLIARGS", {"forks": 2})
    step: Any = SimpleNamespace(_low_level_execute_command=answer)
    given = cluster_watch.Inputs(nodes=["spark1", "spark2"], interval=5)
    variables = {"inventory_hostname": "spark2", "ansible_play_hosts_all": given.nodes}
    assert cluster_watch.run(step, given, variables) == {"changed": False, "lines": []}
    assert [round(each) for each in asked] == [0, 5, 10, 15]
    assert json.loads((tmp_path / "gb10-watch-1").read_text(encoding="utf-8"))["output"] == "sample 4"
