"""Run a command of a user on a terminal, and type what it prompts for."""

from __future__ import annotations

import os
import pty
import re
import select
import time
from collections.abc import Mapping
from contextlib import suppress

from run_playbook import Run

_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def typed(user: str, command: str, answers: Mapping[str, str], limit: float) -> Run:
    """Run a shell command as a login of ``user``. ``answers``: the end of a prompt -> the typed line; each prompt is
    answered once.

    Fails if the command has not ended after ``limit`` seconds.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("runuser", ["runuser", "--pty", "--login", user, "--command", command])
    output, left, until = "", dict(answers), time.monotonic() + limit
    while True:
        if not select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
            os.kill(pid, 9)
            raise AssertionError(f"no end after {limit} s:\n{output}")
        data = b""
        with suppress(OSError):  # the end of a terminal
            data = os.read(terminal, 65536)
        if not data:
            break
        output += data.decode(errors="replace")
        for prompt in [prompt for prompt in left if output.rstrip().endswith(prompt)]:
            os.write(terminal, (left.pop(prompt) + "\n").encode())
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Run(status, _COLORS.sub("", output.replace("\r\n", "\n")))
