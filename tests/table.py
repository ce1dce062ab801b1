"""Write the table of docs/testing.md from the reports in build/junit: the tests of each part and their times.

Rows of parts without a report are kept, so `make unit test-table` suffices after a change of the unit tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from run import PARTS, QUICK, ROOT, Case, cases

PAGE = ROOT / "docs" / "testing.md"
START = "<!-- Below this line: `make test-table`. -->\n"


@dataclass
class Row:
    """The tests of one file in one part. ``quick``: how many of them `make test` runs."""

    tests: int = 0
    quick: int = 0
    seconds: float = 0


Table = Mapping[tuple[str, str], Row]


def rows(found: Iterable[Case]) -> Table:
    """Return the rows by part and file."""
    table: dict[tuple[str, str], Row] = {}
    for case in found:
        row = table.setdefault((case.part, case.file), Row())
        row.tests += 1
        row.quick += case.part in QUICK and not case.slow
        row.seconds += case.seconds
    return table


def lines(table: Table) -> Iterator[str]:
    yield "| part | file | tests | of these in `make test` | seconds |"
    yield "|---|---|--:|--:|--:|"
    order = list(PARTS)
    for (part, file), row in sorted(table.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
        yield f"| {part} | `{file}` | {row.tests} | {row.quick} | {row.seconds:.1f} |"
    total = [sum(getattr(row, name) for row in table.values()) for name in ("tests", "quick", "seconds")]
    yield f"| all | | {total[0]} | {total[1]} | {total[2]:.0f} |"


def listed(text: str) -> Table:
    """Return the rows of the page."""
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in text.partition(START)[2].splitlines()[3:-1]]
    return {(part, file): Row(int(tests), int(quick), float(seconds)) for part, file, tests, quick, seconds in cells}


def page(text: str, found: Table) -> str:
    """Return the page with the rows of the found parts replaced."""
    parts = {part for part, _file in found}
    kept = {key: row for key, row in listed(text).items() if key[0] not in parts}
    return "\n".join([text.partition(START)[0] + START, *lines({**kept, **found})]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), rows(cases(ROOT / "build" / "junit"))), encoding="utf-8")
