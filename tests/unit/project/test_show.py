"""The action of the module show: text for people, also text of other machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_playbook import LOCAL, run_plays

from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import color, printable

PLAY = {
    "hosts": "all",
    "gather_facts": False,
    "tasks": [
        {"name": "Lines", "gb10.cluster.show": {"lines": ['one, "two"', "  three", 4, "driver\nproblem: none"]}},
        {"name": "Text", "gb10.cluster.show": {"lines": "a, b\n  c\n"}},
    ],
}


@pytest.mark.parametrize("arguments", [(), ("--check", "--diff", "-vvv")])
def test_lines_are_printed_as_they_are_and_a_text_line_by_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    said = run_plays([PLAY], {"localhost": LOCAL}, tmp_path, *arguments).assert_ok().output
    for task, lines in {
        "Lines": ['  one, "two"', "    three", "  4", "  driver", "    problem: none"],
        "Text": ["  a, b", "    c"],
    }.items():
        banner, _found, rest = said.partition(f"TASK [{task}]")[2].partition("\nok: ")
        assert [line for line in banner.splitlines()[1:] if not line.startswith("task path: ")] == lines
        assert '"msg"' not in rest, "the result repeats the lines"


def test_a_line_cannot_change_the_terminal() -> None:
    assert printable("a\x1b[2J\r\x07b\u202ec é ✓ ") == "a\\x1b[2J\\r\\x07b\\u202ec é ✓"


def test_a_problem_is_red_and_a_warning_is_not() -> None:
    lines = ["problem: spark1 has no rank", "  error rule-a, args", "last error: 2 min ago", "  warning rule-b, args"]
    assert [color(line) for line in lines] == ["red", "red", "red", "bright purple"]
    assert {
        color(line)
        for line in (
            "last error: none of this launch since boot",
            "error (waived: x) rule-a",
            "a problem: no",
            "errors",
        )
    } == {None}
