# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors in an input, in one format: place, found value, expected value, fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One error in the input, or one fact of a node that contradicts it.

    ``path`` is the value's place in the cluster, such as ``nodes[1].ports[0]`` or ``gb10_fabric_mtu``.
    """

    path: str
    found: str
    expected: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}: {self.found}. Expected: {self.expected}. Fix: {self.fix}."


class ProblemsError(Exception):
    """Raised by planners and modules with all problems, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(report(problems))


def refuse(problems: Sequence[Problem]) -> None:
    """Raise ProblemsError if there are problems."""
    if problems:
        raise ProblemsError(problems)


def report(problems: Sequence[Problem], most: int = 0) -> str:
    """Return the problems as one message with a numbered line for each, or for the first ``most``."""
    noun = "problem" if len(problems) == 1 else "problems"
    shown = problems[: most or len(problems)]
    lines = [f"{len(problems)} {noun} found; nothing was changed."]
    lines += [f"  {number}. {problem}" for number, problem in enumerate(shown, 1)]
    return "\n".join([*lines, *([f"  and {len(problems) - len(shown)} more"] if problems[len(shown) :] else [])])
