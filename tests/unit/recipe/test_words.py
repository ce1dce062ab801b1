"""Tests of the splitting of a recipe's command. The words are compared with those of a real shell."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.recipe.words import CommandError, fill, line, split

COMMANDS = {
    "one line": "vllm serve a/b --port 8000",
    "continuations": "vllm serve a/b \\\n  --port 8000 \\\n  --host 0.0.0.0\n",
    "a continuation within a word": "vllm ser\\\nve a/b",
    "JSON in single quotes": """vllm serve a/b --speculative-config '{"method": "mtp", "n": 3}'""",
    "JSON in double quotes": r"""vllm serve a/b --x "{\"a\": \"b c\"}" --y "d\e" """,
    "a line feed in quotes": 'vllm serve a/b --x \'{\n "a": 1}\' --y "1\\\n2"',
    "quotes within a word": """vllm serve a/b --x=a'b 'c"d e"f""",
    "an empty word": "vllm serve a/b --x '' \"\"",
    "escaped characters": r"vllm serve a/b --x a\ b \' \$HOME \\",
    "a comment": "vllm serve a/b # the model\n",
    "a # within a word": "vllm serve a/b#c",
    "tabs": "vllm\tserve  a/b",
    "a dollar sign in single quotes": "vllm serve a/b --x '$HOME `id`'",
    "an assignment": "A=1 B='2 3' vllm serve a/b",
}


def test_comments_may_be_around_a_command() -> None:
    assert split("# a\n\n  # b\nvllm serve a/b \\\n  --x 1  # c\n\n# d\n") == ["vllm", "serve", "a/b", "--x", "1"]
    with pytest.raises(CommandError, match="second line"):
        split("# a\nvllm serve a/b\n# c\nid")
    with pytest.raises(CommandError, match="501 words"):
        split("a " * 501)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_words_are_those_of_a_shell(command: str) -> None:
    # printf ends each word with a NUL byte; `set --` would take the assignment for a word, as this project does.
    loop = f"set -f; for word in {command.strip()}\ndo printf '%s\\0' \"$word\"; done"
    shell = subprocess.run(["/bin/sh", "-c", loop], capture_output=True, text=True, check=True)
    assert split(command) == shell.stdout.split("\0")[:-1]


REFUSED = {
    "a second command": ("vllm serve a/b; rm -rf /", 1, ";"),
    "a second line": ("vllm serve a/b\nid", 1, "second line"),
    "a pipe": ("vllm serve a/b | tee log", 1, "|"),
    "the background": ("vllm serve a/b &", 1, "&"),
    "a redirection": ("vllm serve a/b > log", 1, ">"),
    "a subshell": ("(vllm serve a/b)", 1, "("),
    "a variable": ("vllm serve a/b \\\n --x $HOME", 2, "$"),
    "a variable in quotes": ('vllm serve a/b --x "$HOME"', 1, "$"),
    "a command substitution": ("vllm serve `id`", 1, "`"),
    "a command substitution in quotes": ('vllm serve "$(id)"', 1, "$"),
    "a home folder": ("vllm serve ~/model", 1, "~"),
    "an open quote": ("vllm serve 'a/b\n\n", 1, "single quote"),
    "an open double quote": ('vllm \\\n serve "a/b', 2, "double quote"),
}


@pytest.mark.parametrize(("command", "line", "found"), REFUSED.values(), ids=REFUSED)
def test_what_needs_a_shell_is_refused(command: str, line: int, found: str) -> None:
    with pytest.raises(CommandError) as error:
        split(command)
    assert (error.value.line, found in error.value.found) == (line, True)


@pytest.mark.parametrize(
    ("template", "text"), [("--port {port} '{{\"a\": {{}}}}'", "--port 8000 '{\"a\": {}}'"), ("{a}", "{port}")]
)
def test_parameters_are_replaced_once_and_doubled_braces_are_one(template: str, text: str) -> None:
    assert fill(template, {"port": "8000", "a": "{port}"}) == text


UNFILLED = dict.fromkeys(("{", "}", "{0!r}", "{a.b}", "{a[0]}", "{a:>10}", "{{ {{{"), (1, "a single "))
UNFILLED["vllm serve a/b \\\n--port {port}"] = (2, "{port} has no value")


@pytest.mark.parametrize(("template", "line", "found"), [(template, *rest) for template, rest in UNFILLED.items()])
def test_a_single_brace_and_a_parameter_without_value_are_refused(template: str, line: int, found: str) -> None:
    with pytest.raises(CommandError) as error:
        fill(template, {"a": "x"})
    assert (error.value.line, error.value.found[: len(found)]) == (line, found)
    assert error.value.fix in ("add defaults.port", "double each brace that is not a parameter's")


def test_values_cannot_make_a_command_too_long() -> None:
    assert len(fill("{a}" * 16, {"a": "x" * 4096})) == 1 << 16
    with pytest.raises(CommandError) as error:
        fill("{a}" * 15 + "\n{a}{none}", {"a": "x" * 4096})
    assert (error.value.line, error.value.found) == (2, "more than 65536 characters with the values")


def test_a_deeply_nested_word_of_two_lines_is_refused() -> None:
    with pytest.raises(CommandError, match="a line break"):
        line("\n" + "[" * 5000)
