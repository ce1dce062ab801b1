"""docs/testing.md lists the parts of the tests, and each variable by which the lab differs from a Spark, with the test
that covers the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from repository import ROOT, files, load_yaml, read
from run import QUICK
from run import parts as known_parts

PAGE = read("docs/testing.md")
OPEN, COVERED = "## What no test covers\n", "## What the lab changes\n"


def section(heading: str) -> str:
    assert PAGE.count(heading) == 1, heading
    return PAGE.partition(heading)[2].partition("\n## ")[0]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of a section's table."""
    return [
        [cell.strip() for cell in line.split(" | ")]
        for line in re.findall(r"^\| (.*) \|$", section(heading), re.MULTILINE)[1:]
    ]


def listed() -> list[str]:
    """Return the variables in the first columns, and those that hide nothing."""
    nothing = section(COVERED).partition("hide nothing:")[2].partition(". ")[0]
    cells = [row[0] for heading in (OPEN, COVERED) for row in rows(heading)]
    return re.findall(r"`([^`]+)`", "\n".join([*cells, nothing]))


def names(variables: Mapping[str, object]) -> Iterator[str]:
    """Yield the variables, and the names in those that have several: environment variables and options."""
    for name, value in variables.items():
        yield name
        if isinstance(value, dict):
            yield from value
        elif isinstance(value, list):
            yield from (word for word in value if isinstance(word, str) and word.startswith("--"))


def of_the_lab() -> set[str]:
    overlay, hosts = (load_yaml(read(f"inventories/lab/{name}.yml")) for name in ("hosts_overlay", "hosts"))
    variables = [overlay["variables"], *(group.get("vars", {}) for group in hosts.values())]
    variables += [load_yaml(read(path)) for path in files("inventories/lab/group_vars/*.yml")]
    return {name for each in variables for name in names(each)}


def test_the_page_has_every_part() -> None:
    parts = re.findall(r"^\| `([a-z0-9._-]+)` \| [^`].*\| (.*) \|$", PAGE, re.MULTILINE)
    assert {name for name, _quick in parts} == known_parts("night").keys()
    assert {name for name, quick in parts if quick != "no"} == set(QUICK)


def test_each_variable_of_the_lab_has_one_row() -> None:
    assert sorted(listed()) == sorted(of_the_lab())


def test_options_and_environment_variables_count() -> None:
    assert list(names({"env": {"A": 1}, "arguments": ["--b", "1"], "ports": [1], "c": "--d"})) == [
        "env",
        "A",
        "arguments",
        "--b",
        "ports",
        "c",
    ]


def test_what_no_test_covers_comes_first() -> None:
    assert re.match(rf"# Testing\n\n{OPEN}", PAGE)
    assert all(len(row) == 4 and all(row) for heading in (OPEN, COVERED) for row in rows(heading))


def test_each_difference_is_covered_by_existing_tests() -> None:
    tests = r"`(tests/[\w/]+\.py)`"
    assert [row[0] for row in rows(COVERED) if not re.search(tests, row[3])] == []
    assert [
        path
        for heading in (OPEN, COVERED)
        for path in re.findall(tests, section(heading))
        if not (ROOT / path).is_file()
    ] == []
