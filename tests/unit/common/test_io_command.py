"""Commands on a node: those that are missing, fail, hang, or write too much."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_module import program

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command


@pytest.fixture
def module(tmp_path: Path) -> Any:
    """Return what a module has of AnsibleModule, with programs of its own."""
    folder = program(tmp_path / "bin", "say", 'echo "$LC_ALL $1"; echo complaint >&2; exit 3')
    program(folder, "hang", "echo begun; exec sleep 600")
    program(folder, "much", "head --bytes=1000000 /dev/zero | tr '\\0' x")
    program(folder, "closed", "true").joinpath("closed").chmod(0o000)

    def find(name: str, opt_dirs: list[str] | None = None) -> str | None:
        found = folder / name if opt_dirs is None else Path("/nonexistent")
        return str(found) if found.exists() else None

    def run(argv: list[str], environ_update: dict[str, str], **_options: Any) -> tuple[int, str, str]:
        done = subprocess.run(argv, env=os.environ | environ_update, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return SimpleNamespace(get_bin_path=find, run_command=run)


SAID = (3, "C.UTF-8 word\n", "complaint\n")
MISSING = (io_command.NOT_INSTALLED, "", "none is not installed")


def test_a_command_has_its_status_or_that_of_a_missing_one(module: Any) -> None:
    run = io_command.runner(module)
    assert run(["say", "word"]) == SAID
    assert run(["none", "word"]) == MISSING


def test_commands_run_at_once_and_one_that_hangs_spoils_no_other(module: Any) -> None:
    run_all, began = io_command.parallel_runner(module, 5.0), time.monotonic()
    found = run_all([["hang"], ["say", "word"], ["none", "word"], ["much"], ["hang"]])
    hung = (io_command.TIMED_OUT, "begun\n", "timed out after 5 s")
    assert found == [hung, SAID, MISSING, (0, "x" * 1_000_000, ""), hung]
    assert time.monotonic() - began < 60
    assert run_all([]) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may run everything that is executable")
def test_a_command_that_the_user_may_not_run_has_its_status(module: Any) -> None:
    ((status, _stdout, stderr),) = io_command.parallel_runner(module, 1.0)([["closed"]])
    assert (status, "may not run" in stderr) == (126, True)


@pytest.mark.parametrize(("part", "expected"), [("head", "01234"), ("tail", "56789")])
def test_the_output_of_a_command_is_limited_in_bytes_and_time(part: str, expected: str) -> None:
    argv = io_command.within(["printf", "%s", "0123456789"], part, 5, 60)
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == expected
    hung = io_command.within(["sleep", "600"], part, 5, 1)
    assert subprocess.run(hung, capture_output=True, check=False).returncode == io_command.TIMED_OUT


def test_a_program_of_the_machine_is_found_after_those_of_the_path() -> None:
    """The sbin folders come before /usr/local/bin, where an older Ansible does not look."""
    asked: list[Any] = []

    def find(name: str, opt_dirs: list[str] | None = None) -> str | None:
        asked.append((name, opt_dirs))
        return f"{opt_dirs[0]}/{name}" if opt_dirs else None

    found: list[Any] = []
    kept = {"environ_update": {"LC_ALL": "C.UTF-8"}, "handle_exceptions": False}
    module = SimpleNamespace(
        get_bin_path=find, run_command=lambda argv, **given: found.append((argv, given)) or (0, "", "")
    )
    assert io_command.runner(module)(["tool", "-x"]) == (0, "", "")
    assert found == [(["/usr/local/bin/tool", "-x"], kept)]
    assert asked == [("tool", None), ("tool", ["/usr/local/bin"])]
    assert io_command.within(["a", "b"], "tail", 7, 3) == [
        "timeout",
        "3",
        "sh",
        "-c",
        '"$@" | tail --bytes=7',
        "sh",
        "a",
        "b",
    ]


def test_a_command_that_may_not_run_has_its_status(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    def refuse(*_argv: Any, **_options: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    ((status, stdout, stderr),) = io_command.parallel_runner(module, 1.0)([["say"]])
    assert (status, stdout) == (126, "") and stderr.startswith("this user may not run /")
