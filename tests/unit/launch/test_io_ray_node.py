"""The parent of `ray start`, with real processes: a raylet is a process with this name."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray_node

PARENT = r"""
import re, sys
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray_node
from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
systemd.unit_of_cgroup = lambda _text: "test.service"
io_ray_node._END = 1.0
io_ray_node._RAYLET = re.compile(rf"\d+ \({sys.argv[1]}\) [^ZX]")
raise SystemExit(io_ray_node.run(sys.argv[2:], "test.service", pause=0.1))
"""
#: `ray start`: starts a raylet, waits for it, and waits forever, although it has ended with status 0.
RAY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
code = "import sys, time; open('/proc/self/comm', 'w').write(sys.argv[1]); time.sleep(float(sys.argv[2]))"
subprocess.run([sys.executable, "-c", code, *sys.argv[1:3]])
print("the raylet ended", flush=True)
time.sleep(60)
"""


def parent(name: str, seconds: str) -> subprocess.Popen[str]:
    """Start `ray start` under the program, with a raylet that runs for this time."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PARENT, name, sys.executable, "-c", RAY, name, seconds]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def runs(name: str) -> bool:
    # Other tests' processes end meanwhile.
    return any(name == io_file.read(str(path)).strip() for path in Path("/proc").glob("[0-9]*/comm"))


@pytest.fixture
def name() -> str:
    """A name that no other test has: the kernel keeps 15 characters."""
    return f"raylet{os.getpid()}"


def test_ray_ends_when_its_raylet_has_ended(name: str) -> None:
    with parent(name, "3") as process:
        output, _error = process.communicate(timeout=60)
    assert (process.returncode, "gb10-gates ends ray start: its raylet has ended" in output) == (1, True), output


def test_a_stop_reaches_ray(name: str) -> None:
    with parent(name, "60") as process:
        wait_until(lambda: runs(name), 60, pause=0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0, "a stop is no failure, whatever the status of `ray start`"


def test_a_raylet_of_another_unit_does_not_count() -> None:
    assert io_ray_node.raylet("no-such.service") == ""


def test_the_address_is_the_one_that_a_raylet_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    assert io_ray_node.address("no-such.service") == ""
    program = "import time; print(flush=True); time.sleep(60)"
    argv = [sys.executable, "-c", program, "--node_ip_address=10.110.0.1", "--x=1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        # A process has no arguments for a moment of its start.
        assert process.stdout and process.stdout.readline() == b"\n"
        monkeypatch.setattr(io_ray_node, "raylet", lambda _unit: str(process.pid))
        found = io_ray_node.address("gb10-ray.service")
        process.kill()
    assert found == "10.110.0.1"


class Child:
    """A `ray start` that runs through these looks, each with the raylet found then, and ends with a status after
    them."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, looks: list[str], status: int = 0, stubborn: bool = False
    ) -> None:
        self.looks, self.status, self.stubborn, self.calls = looks, status, stubborn, []  # type: ignore[var-annotated]
        monkeypatch.setattr(io_ray_node.subprocess, "Popen", lambda _command: self)
        monkeypatch.setattr(io_ray_node, "raylet", lambda _unit, _known: self.looks.pop(0))
        monkeypatch.setattr(io_ray_node.signal, "signal", lambda *_given: None)

    def wait(self, seconds: float) -> int:
        if seconds == 30.0:
            self.calls.append("wait")
            if self.stubborn:
                raise subprocess.TimeoutExpired("ray", seconds)
            return 0
        if self.looks:
            raise subprocess.TimeoutExpired("ray", seconds)
        return self.status

    def terminate(self) -> None:
        self.calls.append("terminate")

    def kill(self) -> None:
        self.calls.append("kill")


def test_a_raylet_that_is_missing_in_three_looks_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(monkeypatch, ["", "", "", "", "7", "", "", "7", "", "", "8", "", "", "", "9"])
    assert io_ray_node.run(["ray"], "gb10-ray.service") == 1
    assert (child.looks, child.calls) == (["9"], ["terminate", "wait"])
    stubborn = Child(monkeypatch, ["7", "", "", ""], stubborn=True)
    assert io_ray_node.run(["ray"], "gb10-ray.service") == 1
    assert stubborn.calls == ["terminate", "wait", "kill"]


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (7, 7), (-9, 137), (-15, 143)])
def test_the_status_of_a_signal_is_that_of_a_shell(monkeypatch: pytest.MonkeyPatch, status: int, expected: int) -> None:
    Child(monkeypatch, ["7"], status)
    assert io_ray_node.run(["ray"], "gb10-ray.service") == expected


def test_the_heads_ray_is_asked_while_the_raylet_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A head that does not answer may be cut off for a moment.
    refused = errno.ECONNREFUSED
    answers = [refused, refused, errno.ETIMEDOUT, refused, refused, 0, refused, refused, refused]
    monkeypatch.setattr(io_ray_node.io_peer, "error", lambda *_head: answers.pop(0))
    Child(monkeypatch, ["7"] * 12)
    assert io_ray_node.run(["ray"], "gb10-ray.service", ("10.0.0.1", 6379)) == 1
    assert answers == []
    assert (
        capsys.readouterr().out
        == "gb10-gates ends ray start: the head's Ray has ended, and its next one does not know this node\n"
    )
