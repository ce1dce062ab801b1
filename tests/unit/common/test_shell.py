"""Commands that a person copies from a screen of 80 columns."""

from __future__ import annotations

import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common import shell

LONG = "'" + '{"a": ' + "1" * 90 + "}'"


def test_an_option_and_a_value_that_is_too_long_for_a_row_are_two_lines() -> None:
    assert shell.folded(["vllm", f"--speculative-config {LONG}"]) == ["vllm --speculative-config \\", f"  {LONG}"]
    assert shell.folded(["vllm", LONG]) == ["vllm \\", f"  {LONG}"]
    assert shell.folded(["vllm", "--port 8000"]) == ["vllm --port 8000"]


@settings(deadline=None)
@given(st.lists(st.text(min_size=1, max_size=120), min_size=1, max_size=9), st.booleans())
def test_a_shell_reads_the_lines_as_the_command(values: list[str], options: bool) -> None:
    words = [f"--x {shlex.quote(value)}" if options else shlex.quote(value) for value in values]
    assert shlex.split("\n".join(shell.folded(["vllm", *words])).replace("\\\n", "")) == shlex.split(
        " ".join(["vllm", *words])
    )


def test_a_line_has_up_to_the_columns_of_the_screen() -> None:
    """76 with the backslash, because a module's output is indented."""
    word = "x" * 34
    assert shell.folded([word, f"{word}yyyyy", "z"]) == [f"{word} {word}yyyyy z"[:74] + " \\", "  z"]
    assert shell.folded([word, f"{word}yyyyyy", "z"]) == [f"{word} \\", f"  {word}yyyyyy z"]
    assert shell.folded(["ab", f"--o {'v' * 68}"]) == ["ab \\", f"  --o {'v' * 68}"]
    assert shell.folded(["ab", f"--o {'v' * 69}"]) == ["ab --o \\", f"  {'v' * 69}"]
    assert shell.folded([f"--o={'v' * 90}", f"a {'v' * 90}"]) == [f"--o={'v' * 90} \\", f"  a {'v' * 90}"]
    assert shell.folded(["a", "b", "c"], 5) == ["a b \\", "  c"] and shell.folded([]) == []
