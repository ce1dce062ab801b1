"""The message of problems, and the durations in messages."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import problems, spans
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError

FOUND = [Problem(f"p{number}", "x", "y", "z") for number in range(3)]


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (1, 0, ["1 problem found; nothing was changed.", "  1. p0: x. Expected: y. Fix: z."]),
        (
            2,
            2,
            [
                "2 problems found; nothing was changed.",
                "  1. p0: x. Expected: y. Fix: z.",
                "  2. p1: x. Expected: y. Fix: z.",
            ],
        ),
        (3, 1, ["3 problems found; nothing was changed.", "  1. p0: x. Expected: y. Fix: z.", "  and 2 more"]),
    ],
)
def test_a_report_has_a_line_for_each_of_the_first_problems(count: int, most: int, expected: list[str]) -> None:
    assert problems.report(FOUND[:count], most).split("\n") == expected


def test_all_problems_are_raised_together() -> None:
    problems.refuse([])
    with pytest.raises(ProblemsError) as raised:
        problems.refuse(FOUND)
    assert (raised.value.problems, str(raised.value)) == (tuple(FOUND), problems.report(FOUND))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.5, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (86399, "23 h"),
        (86400, "1 d"),
        (200000, "2 d"),
    ],
)
def test_a_duration_has_its_largest_unit(seconds: float, expected: str) -> None:
    assert spans.span(seconds) == expected
