"""docs/testing.md lists where each test runs."""

from __future__ import annotations

import re

import table
from repository import files, read
from run import PARTS, QUICK, Case


def case(part: str, file: str, seconds: float = 1.0) -> Case:
    return Case(part, file, "test", seconds, "passed")


def test_rows_are_in_the_order_of_the_parts_and_have_the_time_of_all_tests() -> None:
    found = [case("patch", "b.py"), case("ring", "c.py"), case("default", "a.py"), case("default", "a.py", 59)]
    shown = table.page(f"# Testing\n{table.START}", table.rows(found))
    assert shown == (
        f"# Testing\n{table.START}\n"
        "| part | file | seconds |\n|---|---|--:|\n| default | `a.py` | 60.0 |\n| ring | `c.py` | 1.0 |\n| "
        "patch | `b.py` | 1.0 |\n"
    )
    again = table.page(shown, table.rows([case("default", "new.py", 2)]))
    assert list(table.listed(again)) == [("default", "new.py"), ("ring", "c.py"), ("patch", "b.py")]


def test_the_page_has_every_test_file() -> None:
    listed = {file for _part, file in table.listed(read("docs/testing.md"))}  # else: make unit test-table
    # docs/reliability.md has the table of tests/faults, which `make faults` runs.
    assert {
        path for path in files("tests/**/test_*.py") if not path.startswith(("tests/output/", "tests/faults/"))
    } == listed


def test_the_page_has_every_part() -> None:
    rows = re.findall(
        r"^\| `([a-z0-9_-]+)` \|.*\| (.*) \|$", read("docs/testing.md").partition(table.START)[0], re.MULTILINE
    )
    assert {name for name, _quick in rows} == PARTS.keys()
    assert {name for name, quick in rows if quick != "no"} == set(QUICK)
