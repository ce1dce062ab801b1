# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock of a cluster: which run changes it, whether that run has ended, and what the others are told.

It is a file of root's on the head, in memory, and gone after a reboot of the head::

    {"id": str,         # eight hexadecimal digits, of this one lock
     "since": str,      # the head's time in UTC, to be read by people
     "taken": float,    # seconds since the head was booted
     "owner": {"user": str, "host": str, "playbook": str,
               "boot": str,     # in which process numbers count: one start of one kernel, one namespace; "" where that is not known
               "pid": int, "started": str}}       # the run's process there, and when it started

A process that has the same number and another start is another one. So a run from the same machine sees whether the owner has ended; a run from
another machine does not, and no age says it: a download may take half a day.
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
#: Characters of the file; what we write has less than 600.
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
    """The file on the head is no lock, or is where others could have put it; the text says what it is."""


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
        return self == other or (bool(self.boot) and (self.boot, self.pid, self.started) == (other.boot, other.pid, other.started))


@dataclass(frozen=True)
class Lock:
    """A lock; see above."""

    id: str
    since: str
    taken: float
    owner: Owner


def word(text: str) -> str:
    """Return a name such as a user's or a host's as it can stand in a lock."""
    return re.sub(r"[^!-~]", "?", text)[:100] or "?"


def text(lock: Lock) -> str:
    """Return the file's text."""
    return json.dumps(asdict(lock), indent=1) + "\n"


def parse(given: str) -> Lock:
    """Return the lock that a file's text is. Raises LockError, and nothing else."""
    try:
        found = bounded_json.load(given, MOST_TEXT)
    except ValueError:
        raise LockError("it is no JSON") from None
    return lock(found)


def lock(given: object) -> Lock:
    """Return the lock that data is. Raises LockError, and nothing else."""
    entry = _mapping(given, {"id", "since", "taken", "owner"})
    if not _is(entry["id"], r"[0-9a-f]{8}") or not _is(entry["since"], r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"):
        raise LockError("its id or its time is none")
    taken = entry["taken"]
    if type(taken) not in (int, float) or not (abs(taken) <= 1e12 and math.isfinite(taken)):
        raise LockError("it was taken at no time")
    return Lock(str(entry["id"]), str(entry["since"]), float(taken), owner(entry["owner"]))


def owner(given: object) -> Owner:
    """Return the owner that data is. Raises LockError, and nothing else."""
    entry = _mapping(given, {*_FORMS, "pid"})
    wrong = [name for name, form in _FORMS.items() if not _is(entry[name], form)]
    if wrong or isinstance(entry["pid"], bool) or not isinstance(entry["pid"], int) or not 0 < entry["pid"] < 1 << 31:
        raise LockError(f"its owner has a wrong {', '.join(sorted(wrong)) or 'pid'}")
    return Owner(**{str(name): value for name, value in entry.items()})


def _mapping(given: object, keys: set[str]) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping) or set(given) != keys:
        raise LockError(f"it does not have {', '.join(sorted(keys))}, and nothing else")
    return given


def _is(value: object, form: str) -> bool:
    return isinstance(value, str) and re.fullmatch(form, value) is not None


def ended(holder: Owner, boot: str, started: str) -> bool:
    """Whether a holder's run has ended, as far as this machine can know.

    ``boot``: this machine's, as in an owner. ``started``: when the process with the holder's number started here, "" if there is none.
    """
    return bool(boot) and holder.boot == boot and holder.started != started


def described(holder: Lock) -> str:
    """Return whose a lock is, and since when."""
    return f"{holder.owner.user}@{holder.owner.host} runs {holder.owner.playbook} (process {holder.owner.pid}) since {holder.since} UTC"


def refusal(holder: Lock, age: float, boot: str) -> str:
    """Return what a run is told that finds the lock taken. ``age`` in seconds, by the head's clock; ``boot`` as for ``ended``."""
    if boot and holder.owner.boot == boot:
        fix = f"wait until it has ended, or end it: kill {holder.owner.pid}"
    else:
        fix = f"wait until it has ended; if it was killed, and you know that nothing of it runs any more, add -e gb10_break_lock={holder.id}"
    found = f"the cluster is locked: {described(holder)}, for {spans.span(age)}"
    return report([Problem(f"{FOLDER}/{FILE}", found, "one run at a time", fix)])


def unreadable(reason: str) -> str:
    """Return what a run is told that finds something else in the lock's place."""
    fix = "look at it on the head; if it may go, remove it with sudo rm"
    return report([Problem(f"{FOLDER}/{FILE}", f"it is no lock of this collection: {reason}", "a lock, or nothing", fix)])
