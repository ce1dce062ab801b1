# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of a cluster: the run that changes it, and the message for other runs.

It is a root-owned file in memory on the head, gone after a reboot of the head::

    {"owner": {"user": str, "host": str, "playbook": str,
               "boot": str,     # ID of the boot and process number namespace that pid refers to; "" if unknown
               "pid": str, "started": str}}       # the run's process there, and its start time

A process with the same number but another start time is a different one. So a run on the same machine can detect that
the owner has ended. A run on another machine cannot, and the lock's age is not evidence: a download may take half a
day.
"""

from __future__ import annotations

import hashlib
import re

from ansible_collections.gb10.cluster.plugins.module_utils.common import spans
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

FOLDER = "/run/gb10"
FILE = "lock.json"
#: The values of a lock, which messages show: of its file, then its time in UTC and its age in seconds, by the head's
#: clock. A shell receives the pid from a fix.
_VALUES = {
    **dict.fromkeys(("user", "host", "playbook", "boot", "started", "since"), r"[ -~]{0,100}"),
    "pid": r"[1-9][0-9]{0,9}",
    "age": r"[0-9]{1,12}",
}


def lock(given: object) -> dict[str, str]:
    """Return the values of a lock from a file or another machine. Raises ValueError, and nothing else."""
    entries = given.items() if isinstance(given, dict) else ()
    found = {name: str(value) for name, value in entries if name in _VALUES and isinstance(value, str | int)}
    if not all(re.fullmatch(form, found.get(name, "\n")) for name, form in _VALUES.items()):
        raise ValueError("a value of the lock is missing or invalid")
    return found


def word(text: str) -> str:
    """Return a text in a form that a lock accepts."""
    return re.sub(r"[^ -~]", "?", text)[:100]


def run_id(owner: dict[str, str]) -> str:
    """Return the ID of a lock's run: eight hexadecimal digits. A laptop may get another name during a run."""
    names = ("boot", "pid", "started") if owner["boot"] else ("user", "host", "playbook", "pid", "started")
    return hashlib.blake2s(" ".join(owner[name] for name in names).encode(), digest_size=4).hexdigest()


def described(holder: dict[str, str]) -> str:
    """Return a lock's owner and start time."""
    return "{user}@{host} runs {playbook} (process {pid}) since {since} UTC".format_map(holder)


def refusal(holder: dict[str, str], mine: dict[str, str]) -> str:
    """Return the message for a run that finds the lock taken."""
    if mine["boot"] and holder["boot"] == mine["boot"]:
        fix = f"wait for it to end, or end it: kill {holder['pid']}"
    else:
        fix = (
            f"wait for it to end; if it was killed or {holder['host']} was rebooted since, and none of its processes "
            f"is left, add -e gb10_break_lock={run_id(holder)}"
        )
    return str(
        Problem(
            f"{FOLDER}/{FILE}",
            f"the cluster is locked: {described(holder)}, for {spans.span(int(holder['age']))}",
            "one run at a time",
            fix,
        )
    )


def unreadable(reason: str) -> str:
    """Return the message for a run that finds an invalid file instead of a lock, or cannot use the folder."""
    return str(
        Problem(
            f"{FOLDER}/{FILE}",
            f"it cannot be used: {reason}",
            "a lock of this collection, or no file",
            "inspect it on the head; if it is not needed, remove it with sudo rm",
        )
    )
