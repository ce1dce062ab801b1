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
the owner has ended. A run on another machine cannot, and the lock's age is no evidence: a download may take half a day.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, spans
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, report

FOLDER = "/run/gb10"
FILE = "lock.json"
#: Maximum characters of the file; this collection writes fewer than 600.
MOST_TEXT = 4096
_WORD = r"[!-~]{1,100}"
_FORMS: Mapping[str, str] = {
    "user": _WORD,
    "host": _WORD,
    "playbook": _WORD,
    "boot": r"[0-9a-f]{0,64}",
    "started": r"[ -~]{0,64}",
}


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
    """Validate a lock. Raises LockError, and nothing else."""
    entry = _mapping(given, {"id", "since", "taken", "owner"})
    if not _is(entry["id"], r"[0-9a-f]{8}") or not _is(
        entry["since"], r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"
    ):
        raise LockError("its id or its time is invalid")
    taken = entry["taken"]
    if type(taken) not in (int, float) or not (abs(taken) <= 1e12 and math.isfinite(taken)):
        raise LockError("its value of taken is not a valid time")
    return Lock(str(entry["id"]), str(entry["since"]), float(taken), owner(entry["owner"]))


def owner(given: object) -> Owner:
    """Validate an owner. Raises LockError, and nothing else."""
    entry = _mapping(given, {*_FORMS, "pid"})
    wrong = [name for name, form in _FORMS.items() if not _is(entry[name], form)]
    if wrong or isinstance(entry["pid"], bool) or not isinstance(entry["pid"], int) or not 0 < entry["pid"] < 1 << 31:
        raise LockError(f"its owner has an invalid {', '.join(sorted(wrong)) or 'pid'}")
    return Owner(**{str(name): value for name, value in entry.items()})


def _mapping(given: object, keys: set[str]) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping) or set(given) != keys:
        raise LockError(f"its keys are not exactly {', '.join(sorted(keys))}")
    return given


def _is(value: object, form: str) -> bool:
    return isinstance(value, str) and re.fullmatch(form, value) is not None


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
