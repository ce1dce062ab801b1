"""The action of the module show: text for people, also text of other machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import color, printable

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - gb10.cluster.show:
        lines: {lines}
"""


def shown(folder: Path, lines: str, *arguments: str) -> list[str]:
    """Return the lines between the task's banner and its result."""
    play = folder / "play.yml"
    play.write_text(PLAYBOOK.format(lines=lines), encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        str(play),
        "-i",
        "localhost,",
        "-c",
        "local",
        *arguments,
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    banner, _found, rest = result.stdout.partition("TASK [gb10.cluster.show]")[2].partition("\nok: ")
    lines = [line for line in banner.splitlines()[1:] if not line.startswith("task path: ")]
    assert '"msg"' not in rest, "the result repeats the lines"
    return lines


@pytest.mark.parametrize("arguments", [(), ("--check", "--diff"), ("-vvv",)])
def test_lines_are_printed_as_they_are(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert shown(tmp_path, '["one, \\"two\\"", "  three", 4]', *arguments) == ['  one, "two"', "    three", "  4"]


def test_a_text_is_printed_line_by_line(tmp_path: Path) -> None:
    assert shown(tmp_path, "|\n          a, b\n            c\n") == ["  a, b", "    c"]


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
