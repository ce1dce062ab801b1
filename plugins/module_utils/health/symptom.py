# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The type of an entry in the troubleshooting tables."""

from __future__ import annotations

from dataclasses import dataclass

PAGE = "docs/troubleshooting.md"

#: How well an entry was tested: its message or state occurs in a test of this project, its message was read in the
#: source code of the named software, it is only documented there, or only other users reported it.
LAB = "seen in a test of this project"
SOURCE = "message read in the source code, failure not seen here"
DOCUMENTED = "documented or printed by the named software, not seen here"
REPORTED = "reported by others, not seen here"


@dataclass(frozen=True)
class Symptom:
    """One symptom with its cause and fix. ``id`` is its anchor on the page.

    ``shows`` are example log lines, or for a symptom without log lines its description. ``pattern`` matches the log
    lines, "" without them; it has only bounded repetitions, because log lines are untrusted. ``rules`` are the IDs of
    the lint rules about the same problem.
    """

    id: str
    topic: str
    shows: tuple[str, ...]
    cause: str
    fix: str
    source: str
    tested: str = REPORTED
    pattern: str = ""
    rules: tuple[str, ...] = ()

    def advice(self) -> str:
        """Return cause, fix and the place on the page, for the end of a message."""
        return f"; cause: {self.cause}; fix: {self.fix}; {PAGE}#{self.id}"
