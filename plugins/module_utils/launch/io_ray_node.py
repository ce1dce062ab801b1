# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run `ray start --block` on a node, and end it when its raylet or the head's Ray has ended.

`ray start` ends when a process of Ray fails. A raylet whose agent died ends with status 0, and `ray start` then waits
forever on a node that no job can use. Source: Ray 2.56, scripts.py (expected_return_codes) and agent_manager.cc. A
raylet whose head returned with another GCS notices that after 25 to 40 s, in the lab with Ray 2.56.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_peer

#: Seconds: between two looks, and for Ray to end.
_PAUSE, _END = 2.0, 30.0
#: Looks without a raylet, or without the head's Ray, that count as its end.
_MISSED = 3
#: A raylet that is not a zombie, in /proc/PID/stat. Source: proc_pid_stat(5).
_RAYLET = re.compile(r"\d+ \(raylet\) [^ZX]")


def raylet(unit: str, known: str = "") -> str:
    """Return the ID of the raylet in the unit or in its container, "" for none. Looks at the ``known`` ID first."""
    of_unit = (
        name
        for name in (known, *os.listdir("/proc"))
        if name.isdecimal()
        and _RAYLET.match(io_file.read(f"/proc/{name}/stat"))
        and systemd.unit_of_cgroup(io_file.read(f"/proc/{name}/cgroup")) == unit
    )
    return next(of_unit, "")


def address(unit: str) -> str:
    """Return the address that the raylet of the unit registered for this node, "" without one.

    Source: Ray 2.60, _private/services.py, start_raylet().
    """
    found = raylet(unit)
    words = io_file.read(f"/proc/{found}/cmdline").split("\0") if found else []
    return next((word.partition("=")[2] for word in words if word.startswith("--node_ip_address=")), "")


def run(command: Sequence[str], unit: str, head: tuple[str, int] | None = None, pause: float = _PAUSE) -> int:
    """Run the command until it, its raylet or the Ray of the ``head`` (address, port) ends.

    Returns its exit status, 1 after the end of one of the others, 0 if the service was stopped: `ray start` then ends
    with 1, and a failed service counts as one that used all its starts.
    """
    # A service has no module with run_command.
    child = subprocess.Popen(command)  # pylint: disable=ansible-bad-function
    stopping = threading.Event()

    def stop(number: int, _frame: object) -> None:
        stopping.set()
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    known, missed, lost = "", 0, ""
    while missed < _MISSED:
        try:
            status = child.wait(pause)
        except subprocess.TimeoutExpired:
            found = raylet(unit, known)
            # Before its first raylet, and while it stops, Ray needs none.
            lost = "" if not known or stopping.is_set() else _lost(found, head)
            missed = missed + 1 if lost else 0
            known = found or known
        else:
            if stopping.is_set():
                return 0
            return status if status >= 0 else 128 - status
    sys.stdout.write(f"gb10-gates ends ray start: {lost}\n")
    sys.stdout.flush()
    child.terminate()
    try:
        child.wait(_END)
    except subprocess.TimeoutExpired:
        child.kill()
    return 1


def _lost(found: str, head: tuple[str, int] | None) -> str:
    if not found:
        return "its raylet has ended, so no job can use this node"
    # A head that does not answer may be cut off for a moment.
    refused = head and io_peer.error(*head) == errno.ECONNREFUSED
    return "the head's Ray has ended, and its next one does not know this node" if refused else ""
