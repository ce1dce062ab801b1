# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take, release and read a cluster's lock on its head; on the controller, identify the owner.

A writer holds flock on the folder while it reads and writes, as in every release. So of runs that find the lock free,
or its owner ended, one takes it. The kernel releases flock when a writer is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan


def change(folder: str, state: str, breaks: str, owner: dict[str, str], check: bool) -> dict[str, str]:
    """Take or release the lock. Return the lock of another run, which stays, {} otherwise.

    ``breaks``: the ID of another run whose lock does not count. ``check``: change nothing. Other processes wait until
    this one ends, or for at most two minutes. Raises OSError, ValueError.
    """
    if not check:
        os.makedirs(folder, 0o700, exist_ok=True)
        io_file.lock(folder)
    holder = look(folder)
    if holder and run_lock_plan.run_id(holder) not in (breaks, run_lock_plan.run_id(owner)):
        return holder
    if not check:
        io_file.install(f"{folder}/{run_lock_plan.FILE}", json.dumps({"owner": owner}) if state == "held" else None)
    return {}


def look(folder: str) -> dict[str, str]:
    """Return the current lock, {} without one. Raises OSError, ValueError."""
    path = f"{folder}/{run_lock_plan.FILE}"
    try:
        if fault := io_file.exposed(folder):
            raise ValueError(fault)
        facts = os.lstat(path)
    except FileNotFoundError:
        return {}
    if os.path.islink(path) or facts.st_uid != os.geteuid():
        raise ValueError("it is a link, or not root's")
    # Only root could replace it meanwhile. This collection writes fewer than 600 bytes.
    owner = (io_json.json_file(path, 4096) or {}).get("owner")
    return run_lock_plan.lock(
        {
            **(owner if isinstance(owner, dict) else {}),
            "since": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(facts.st_mtime)),
            "age": max(0, int(time.time() - facts.st_mtime)),
        }
    )


def owner(pid: int, playbook: str) -> dict[str, str]:
    """Return the run of a process on this machine, the controller."""
    boot, started = _process(pid)
    return {
        "user": run_lock_plan.word(os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())),
        "host": run_lock_plan.word(os.uname().nodename),
        "playbook": run_lock_plan.word(playbook),
        "boot": boot,
        "pid": str(pid),
        "started": started,
    }


def ended(holder: dict[str, str]) -> bool:
    """Whether a lock's run has ended. Only its own machine can verify that; others get False."""
    boot, started = _process(int(holder["pid"]))
    return holder["boot"] == boot != "" and holder["started"] != started


def _process(pid: int) -> tuple[str, str]:
    """Return an ID of this boot and process number namespace, "" if unknown, and the start time of a process, "" if it
    does not exist or has ended."""
    try:
        # Not readable if the kernel hides the processes of other users (hidepid): then they only seem to have ended.
        Path("/proc/1/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip() + os.readlink("/proc/self/ns/pid")
    except OSError:  # also macOS
        return _output("sysctl", "-n", "kern.bootsessionuuid"), _output("ps", "-o", "lstart=", "-p", str(pid))
    fields = io_file.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return boot, fields[19] if fields and fields[0] not in "ZX" else ""


def _output(*command: str) -> str:
    # A time must not depend on language and zone. Without the command, env only prints an error. The controller has no
    # module with run_command.
    # pylint: disable-next=ansible-bad-function
    return subprocess.run(
        ["env", "LC_ALL=C", "TZ=UTC", *command], capture_output=True, text=True, check=False
    ).stdout.strip()
