# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running commands for the readers, without shell and without failing the module."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

#: Runs an argv and returns (exit status, stdout, stderr), as AnsibleModule.run_command does. 127 stands for a missing command.
Run = Callable[[list[str]], tuple[int, str, str]]

#: Runs several argvs at the same time and returns (exit status, stdout, stderr) of each, in order.
RunAll = Callable[[Sequence[list[str]]], list[tuple[int, str, str]]]
NOT_INSTALLED, TIMED_OUT = 127, 124
_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}


def runner(module: Any) -> Run:
    """Return a Run that uses an AnsibleModule's run_command; a command that is not installed answers with status 127."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        path = _find(module, argv[0])
        if path is None:
            return NOT_INSTALLED, "", f"{argv[0]} is not installed"
        status, stdout, stderr = module.run_command([path, *argv[1:]], environ_update=_ENVIRONMENT, handle_exceptions=False)
        return status, stdout, stderr

    return run


def parallel_runner(module: Any, timeout: float) -> RunAll:
    """Return a RunAll. A command that may not be run answers with status 126, one that runs for more than ``timeout`` seconds with 124."""

    def start(argv: list[str]) -> subprocess.Popen[str] | tuple[int, str, str]:
        path = _find(module, argv[0])
        if path is None:
            return NOT_INSTALLED, "", f"{argv[0]} is not installed"
        try:
            return subprocess.Popen(
                [path, *argv[1:]],
                env=os.environ | _ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except PermissionError:
            return 126, "", f"{path} may not be run by this user"

    def finish(process: subprocess.Popen[str] | tuple[int, str, str], deadline: float) -> tuple[int, str, str]:
        if isinstance(process, tuple):
            return process
        try:
            stdout, stderr = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, _stderr = process.communicate()
            return TIMED_OUT, stdout, f"no end after {timeout:.0f} s"
        return process.returncode, stdout, stderr

    def run_all(argvs: Sequence[list[str]]) -> list[tuple[int, str, str]]:
        processes = [start(argv) for argv in argvs]
        deadline = time.monotonic() + timeout
        return [finish(process, deadline) for process in processes]

    return run_all


def _find(module: Any, command: str) -> str | None:
    """Return the command's path: what is in PATH wins; get_bin_path looks into the system's sbin behind it, but into opt_dirs before."""
    path: str | None = module.get_bin_path(command) or module.get_bin_path(command, opt_dirs=["/usr/local/bin"])
    return path
