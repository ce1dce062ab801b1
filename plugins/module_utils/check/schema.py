# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of every check: one known problem, and its findings.

A table creates its checks with a functools.partial, which has their phase and topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar

#: Where a problem shows: in a plan or another launch, in the log of a failed start, in the status of the nodes, or in
#: the facts of a running cluster.
PLAN, LOG, STATUS, RUNNING = "plan", "log", "status", "running"
#: Phase -> the page of its checks.
PAGES = {
    PLAN: "docs/rules.md",
    LOG: "docs/troubleshooting.md",
    STATUS: "docs/troubleshooting.md",
    RUNNING: "docs/verification.md",
}
#: An error stops the service, slows it by half or more, or returns wrong answers. A warning may do so later. Info marks
#: a choice.
ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)

#: How the message of a symptom was tested: it occurs in a test of this project, was read in the source code of the
#: named software, is only documented there, or only other users reported it.
LAB = "seen in a test of this project"
SOURCE = "message read in the source code, failure not seen here"
DOCUMENTED = "documented or printed by the named software, not seen here"
REPORTED = "reported by others, not seen here"

#: The place of a problem (a node, or the input to change), and its state. A place of "" is the whole cluster.
Found = tuple[str, str]
Subject = TypeVar("Subject")


def _nothing(_subject: object) -> Iterable[Found]:
    return ()


@dataclass(frozen=True)
class Check(Generic[Subject]):
    """One known problem. ``id`` is its anchor on the page of its phase. Texts are sentences without a full stop.

    ``topic`` is its heading on the page, "" without one. ``shows`` are log lines, or the problem in words; ``expected``
    is the right state in words, for checks of a running cluster. ``why`` is the cause or effect.

    ``detect`` returns the findings in what its phase inspects, none if all is as expected. Logs and messages of ssh are
    searched for ``pattern`` instead. It has only bounded repetitions for log lines, which are untrusted. The states of
    a status are found together (health/symptoms.py).

    ``releases`` are the first and the last release of vLLM that can have it, such as ("0.27", "0.31"), "" without a
    bound.

    ``rules`` are the IDs of the rules about the same problem. The others belong to rules: ``gpus`` are the compute
    capabilities of the nodes that it applies to, () for all nodes. ``evidence`` is the date of the newest source.
    ``disputed`` is the evidence against it, with dates and how to choose. ``found_by`` are the only places that can
    find it, "" for the plan.
    """

    phase: str
    id: str
    severity: str = ""
    _rest: KW_ONLY
    topic: str = ""
    shows: str = ""
    expected: str = ""
    why: str
    fix: str
    source: str
    tested: str = REPORTED
    detect: Callable[[Subject], Iterable[Found]] = _nothing
    pattern: str = ""
    releases: tuple[str, str] = ("", "")
    rules: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    evidence: str = ""
    disputed: str = ""
    found_by: str = ""

    @property
    def page(self) -> str:
        """The place of this check in the documentation."""
        return f"{PAGES[self.phase]}#{self.id}"

    def bounds(self) -> str:
        """Return the releases of vLLM for people, "" without a bound."""
        first, last = self.releases
        if first and last:
            return f"vLLM {first} to {last}"
        return f"vLLM {first} and newer" if first else f"vLLM up to {last}" if last else ""

    def advice(self) -> str:
        """Return cause, fix and the place on the page, for the end of a message."""
        return f"; cause: {self.why}; fix: {self.fix}; {self.page}"


@dataclass(frozen=True)
class Finding:
    """A problem that a check found. ``place``: the node or the input, "" for the whole cluster.

    ``waived`` is the user's reason to accept it, "" if it is not waived.
    """

    check: Check[Any]
    place: str
    found: str
    waived: str = ""
