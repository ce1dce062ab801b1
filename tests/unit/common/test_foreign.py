"""Text that another machine or a process wrote."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign, io_journal
from ansible_collections.gb10.cluster.plugins.module_utils.common.foreign import Quota

#: Clear the screen, write to the clipboard, reverse the direction, a control sequence of 8 bits, and another line.
EVIL = "\x1b[2J\x1b]52;c;eA==\x07\u202e\x9b2J\x7f\r\u2028\nALARM: forged"


def test_a_foreign_text_is_one_line_of_limited_length() -> None:
    assert foreign.line(EVIL) == " [2J ]52;c;eA==   2J    ALARM: forged"
    assert len(foreign.line(EVIL * 100)) == foreign.MOST


def test_a_foreign_text_begins_no_line_of_the_journal(capsys: pytest.CaptureFixture[str]) -> None:
    io_journal.say(f"an error: {EVIL}\n")
    assert capsys.readouterr().out == f"an error: {foreign.line(EVIL)}\n"


def test_a_source_has_a_number_of_lines_in_an_hour_and_the_others_are_counted() -> None:
    quota = Quota(3, 100.0)
    assert [quota.take("a", float(second)) for second in range(6)] == [True] * 3 + [False] * 3
    assert quota.take("b", 5.0), "another source"
    assert quota.take("a", 100.0) and not quota.take("a", 100.5)
    assert quota.left_out("a") == " (4 earlier ones were left out)"
    assert quota.left_out("a") == quota.left_out("b") == ""


def test_a_nodes_text_begins_no_line() -> None:
    facts = {"gpu": {"driver\nproblem": "580\nproblem: run this\x1b[0m"}, "ports": ["a\r", 1, None]}
    assert foreign.plain(facts) == {"gpu": {"driver problem": "580 problem: run this [0m"}, "ports": ["a ", 1, None]}


def test_a_quota_is_of_an_hour_and_a_line_of_the_journal_of_4096_characters(capsys: pytest.CaptureFixture[str]) -> None:
    quota = Quota(1)
    assert [quota.take("a", second) for second in (5.0, 3604.9, 3605.0)] == [True, False, True]
    io_journal.say("x" * 5000)
    assert capsys.readouterr().out == "x" * 4096 + "\n"
