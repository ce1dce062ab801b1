# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run commands without a shell and without failing the module."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: Runs an argv and returns (exit status, stdout, stderr), as AnsibleModule.run_command does. 127: not installed.
Run = Callable[[list[str]], tuple[int, str, str]]

#: Runs several argvs at the same time and returns (exit status, stdout, stderr) of each, in order.
RunAll = Callable[[Sequence[list[str]]], list[tuple[int, str, str]]]
NOT_INSTALLED, TIMED_OUT = 127, 124
_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}


def within(argv: Sequence[str], part: str, most: int, seconds: int) -> list[str]:
    """Return a command whose output is the first or last ``most`` bytes of another one's, within ``seconds``.

    ``part``: "head" or "tail". A service user can write gigabytes into a journal. The status is 124 after the time, and
    otherwise that of ``part``.
    """
    return ["timeout", str(seconds), "sh", "-c", f'"$@" | {part} --bytes={most}', "sh", *argv]


def runner(module: Any) -> Run:
    """Return a Run that uses an AnsibleModule's run_command; the status is 127 if the command is not installed."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        path = _find(module, argv[0])
        if path is None:
            return NOT_INSTALLED, "", f"{argv[0]} is not installed"
        status, stdout, stderr = module.run_command(
            [path, *argv[1:]], environ_update=_ENVIRONMENT, handle_exceptions=False
        )
        return status, stdout, stderr

    return run


def parallel_runner(module: Any, timeout: float) -> RunAll:
    """Return a RunAll. The status is 126 if the user may not run the command, 124 after ``timeout`` seconds."""

    def start(argv: list[str]) -> subprocess.Popen[str] | tuple[int, str, str]:
        path = _find(module, argv[0])
        if path is None:
            return NOT_INSTALLED, "", f"{argv[0]} is not installed"
        try:
            # run_command would wait for the end of each.
            return subprocess.Popen(  # pylint: disable=ansible-bad-function
                [path, *argv[1:]],
                env=os.environ | _ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except PermissionError:
            return 126, "", f"this user may not run {path}"

    def finish(process: subprocess.Popen[str] | tuple[int, str, str]) -> tuple[int, str, str]:
        if isinstance(process, tuple):
            return process
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, _stderr = process.communicate()
            return TIMED_OUT, stdout, f"timed out after {timeout:.0f} s"
        return process.returncode, stdout, stderr

    def run_all(argvs: Sequence[list[str]]) -> list[tuple[int, str, str]]:
        processes = [start(argv) for argv in argvs]
        # One that hangs must not keep the others waiting until their time is over too.
        with ThreadPoolExecutor(len(processes) or 1) as pool:
            return list(pool.map(finish, processes))

    return run_all


def _find(module: Any, command: str) -> str | None:
    """Return the command's path. PATH wins: get_bin_path searches sbin folders after it, but opt_dirs before it."""
    path: str | None = module.get_bin_path(command) or module.get_bin_path(command, opt_dirs=["/usr/local/bin"])
    return path
