# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of a cluster: the run that changes it, whether that run has ended, and the message for other runs.

It is a root-owned file in memory on the head, gone after a reboot of the head::

    {"id": str,         # eight hexadecimal digits, unique to this lock
     "since": str,      # the head's time in UTC, for people
     "taken": float,    # seconds since the head was booted
     "owner": {"user": str, "host": str, "playbook": str,
               "boot": str,     # ID of the boot and process number namespace that pid refers to; "" if unknown
               "pid": int, "started": str}}       # the run's process there, and its start time

A process with the same number but another start time is a different one. So a run on the same machine can detect that
the owner has ended. A run on another machine cannot, and the lock's age is not evidence: a download may take half a
day.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, spans
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, report
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

FOLDER = "/run/gb10"
FILE = "lock.json"
#: Maximum characters of the file; this collection writes fewer than 600.
MOST_TEXT = 4096
#: A text of a lock, which messages show, and its id, which the fix of a message gives to a shell.
_TEXT, _ID = re.compile(r"[ -~]{0,100}"), re.compile(r"[0-9a-f]{8}")


class LockError(Exception):
    """The file on the head is not a valid lock, or other users could have written it; the text has the reason."""


@dataclass(frozen=True)
class Owner:
    """A run of a playbook; see above."""

    user: str
    host: str
    playbook: str
    boot: str
    pid: int
    started: str

    def runs(self, other: Owner) -> bool:
        """Whether another owner is the same process."""
        return self == other or (
            bool(self.boot) and (self.boot, self.pid, self.started) == (other.boot, other.pid, other.started)
        )


@dataclass(frozen=True)
class Lock:
    """A lock; see above."""

    id: str
    since: str
    taken: float
    owner: Owner


def word(text: str) -> str:
    """Return a user, host or playbook name in a form that a lock accepts."""
    return re.sub(r"[^!-~]", "?", text)[:100] or "?"


def text(lock: Lock) -> str:
    """Return the file's text."""
    return json.dumps(asdict(lock), indent=1) + "\n"


def parse(given: str) -> Lock:
    """Parse a lock file's text. Raises LockError, and nothing else."""
    try:
        found = bounded_json.load(given, MOST_TEXT)
    except ValueError:
        raise LockError("it is not JSON") from None
    return lock(found)


def lock(given: object) -> Lock:
    """Return a lock from its data. Raises LockError, and nothing else."""
    try:
        found = load.load(Lock, given, "")
    except TypeError:
        raise LockError("it has a missing, unknown or mistyped value") from None
    texts = [each for each in (found.since, *asdict(found.owner).values()) if isinstance(each, str)]
    if not (_ID.fullmatch(found.id) and all(map(_TEXT.fullmatch, texts))):
        raise LockError("its id or a text of it is invalid")
    if not (0 < found.owner.pid < 1 << 31 and abs(found.taken) <= 1e12):
        raise LockError("its pid or its time is invalid")
    return found


def ended(holder: Owner, boot: str, started: str) -> bool:
    """Whether a holder's run has ended. Only its own machine can verify that; others get False.

    ``boot``: this machine's, as in an owner. ``started``: start time of the local process with that number, or "".
    """
    return bool(boot) and holder.boot == boot and holder.started != started


def described(holder: Lock) -> str:
    """Return a lock's owner and start time."""
    return (
        f"{holder.owner.user}@{holder.owner.host} runs {holder.owner.playbook} (process {holder.owner.pid}) since "
        f"{holder.since} UTC"
    )


def refusal(holder: Lock, age: float, mine: Owner) -> str:
    """Return the message for a run that finds the lock taken. ``age`` in seconds, by the head's clock."""
    replace = f"add -e gb10_break_lock={holder.id}"
    if mine.boot and holder.owner.boot == mine.boot:
        fix = f"wait for it to end, or end it: kill {holder.owner.pid}"
    elif holder.owner.host == mine.host:
        fix = (
            f"if {mine.host} is this machine and was rebooted since, that run has ended: {replace}; otherwise wait "
            "for it to end"
        )
    else:
        fix = f"wait for it to end; if it was killed and none of its processes is left, {replace}"
    found = f"the cluster is locked: {described(holder)}, for {spans.span(age)}"
    return report([Problem(f"{FOLDER}/{FILE}", found, "one run at a time", fix)])


def unreadable(reason: str) -> str:
    """Return the message for a run that finds an invalid file instead of a lock."""
    fix = "inspect it on the head; if it is not needed, remove it with sudo rm"
    found = f"it is not a lock of this collection: {reason}"
    return report([Problem(f"{FOLDER}/{FILE}", found, "a lock, or no file", fix)])
