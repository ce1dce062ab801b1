"""Write the table of docs/testing.md from the reports in build/junit: the files of each part and their times.

Rows of parts without a report are kept, so `make unit test-table` suffices after a change of the unit tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from run import PARTS, ROOT, Case, cases

PAGE = ROOT / "docs" / "testing.md"
START = "<!-- Below this line: `make test-table`. -->\n"

#: Seconds by part and file. Numbers of tests are left out, because they change with most commits.
Table = Mapping[tuple[str, str], float]


def rows(found: Iterable[Case]) -> Table:
    """Return the rows by part and file."""
    table: dict[tuple[str, str], float] = {}
    for case in found:
        table[case.part, case.file] = table.get((case.part, case.file), 0) + case.seconds
    return table


def lines(table: Table) -> Iterator[str]:
    yield "| part | file | seconds |"
    yield "|---|---|--:|"
    order = list(PARTS)
    for (part, file), seconds in sorted(table.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
        yield f"| {part} | `{file}` | {seconds:.1f} |"


def listed(text: str) -> Table:
    """Return the rows of the page."""
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in text.partition(START)[2].splitlines()[3:]]
    return {(part, file): float(seconds) for part, file, seconds in cells}


def page(text: str, found: Table) -> str:
    """Return the page with the rows of the found parts replaced."""
    parts = {part for part, _file in found}
    kept = {key: seconds for key, seconds in listed(text).items() if key[0] not in parts}
    return "\n".join([text.partition(START)[0] + START, *lines({**kept, **found})]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), rows(cases(ROOT / "build" / "junit"))), encoding="utf-8")
