# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of a recipe's command.

A shell would run the command; here nothing does, and syntax that needs a shell is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

#: The parts of words, and the text between them. A quote without its end is special, and so is one with a variable.
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+)|(?P<comment>\#[^\n]*)|\\(?P<escaped>.?)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\$`]|\\.)*)"
    |(?P<special>[\n$`;|&<>()~'"])|(?P<plain>[^ \t\r\n\\'"\#$`;|&<>()~]+)""",
    re.DOTALL | re.VERBOSE,
)
#: Blanks and comments.
_REST = re.compile(r"(?:\s|#[^\n]*)*")
#: Characters that a backslash escapes within double quotes. Source: POSIX, Shell Command Language, 2.2.3.
_ESCAPED = re.compile(r'\\(["\\$`\n])')
_OPEN = re.compile(r'"(?:[^"\\$`]|\\.)*', re.DOTALL)
_QUOTES = {"'": "single", '"': "double"}
#: Maximum characters of a filled command.
_MOST = 1 << 16
#: The most words of a command. Published ones have some dozens.
_MOST_WORDS = 500
_FIELD = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]", re.ASCII)


class CommandError(Exception):
    """A command that cannot be planned. ``line``: of the text of ``key``, from 1; ``found``, ``fix``: see Problem."""

    def __init__(self, line: int, found: str, fix: str, key: str = "command") -> None:
        super().__init__(found)
        self.line, self.found, self.fix, self.place = line, found, fix, f"{key}, line {line}"


def fill(template: str, values: Mapping[str, str], literal: bool = False) -> str:
    """Return the template with the values of its ``{parameters}``; doubled braces become one.

    ``literal``: a single brace stays, and a doubled one, too, where no opening brace is doubled: then they are JSON's.
    Raises CommandError for a parameter without a value, for a text that grows too long, and without ``literal`` for a
    single brace.
    """
    size, doubled = len(template), not literal or "{{" in template

    def replaced(match: re.Match[str]) -> str:
        nonlocal size
        text, name = match[0], match[1]
        if text in ("{{", "}}"):
            return text[0] if doubled else text
        if name is None and literal:
            return text
        line = template.count("\n", 0, match.start()) + 1
        if name is None:
            raise CommandError(line, f"a single {text}", "double each brace that is not a parameter's")
        if name not in values:
            raise CommandError(line, f"{{{name}}} has no value", f"add defaults.{name}")
        size += len(values[name]) - len(text)
        if size > _MOST:
            raise CommandError(line, f"more than {_MOST} characters with the values", "shorten it or its defaults")
        return values[name]

    return _FIELD.sub(replaced, template)


def split(text: str) -> list[str]:
    """Return the words of one command, as a POSIX shell would split it.

    Raises CommandError for everything that only a shell could do: several commands, redirections, variables, ``~``.
    """
    text, at = text.strip(), 0
    words, word = list[str](), ""
    within = False
    while match := _TOKEN.match(text, at):
        kind = str(match.lastgroup)
        found, at = match[kind], match.end()
        if kind == "comment" and within:
            kind, found, at = "plain", "#", match.start() + 1
        if kind in ("blank", "comment") or (found == "\n" and _around(text, at, begun=bool(words or within))):
            words += [word] if within else []
            word, within = "", False
        elif (kind, found) != ("escaped", "\n"):
            word += _part(kind, found, within, text, match.start())
            within = True
    words += [word] if within else []
    if len(words) > _MOST_WORDS:
        raise CommandError(1, f"{len(words)} words", f"write at most {_MOST_WORDS}")
    return words


def _part(kind: str, found: str, within: bool, text: str, at: int) -> str:
    if kind == "special" and not (found == "~" and within):
        raise _error(text, at)
    return _ESCAPED.sub(lambda each: each[1].strip("\n"), found) if kind == "double" else found


def _around(text: str, at: int, *, begun: bool) -> bool:
    """Return whether the end of a line is before the command, or only comments follow."""
    return text[at - 2 : at] != "\\\n" and (not begun or bool(_REST.fullmatch(text, at)))


def _error(text: str, at: int) -> CommandError:
    """Return the error of a character that a shell would act on."""
    character = text[at]
    if character == '"' and (opened := _OPEN.match(text, at)) and text[opened.end() : opened.end() + 1] in ("$", "`"):
        at, character = opened.end(), text[opened.end()]
    if character in _QUOTES:
        found, fix = f"a {_QUOTES[character]} quote without its end", "close it"
    elif character in "$`":
        found, fix = f"{character} starts a variable or a command of a shell", "write the value itself"
    elif character == "~":
        found, fix = "~ stands for a home folder of a shell", "write the whole path"
    else:
        name = "a second line without a continuation" if character == "\n" else character
        fix = "write one command, vllm serve; quote the character if it is part of a value"
        found = f"{name}: more than one command"
    return CommandError(text.count("\n", 0, at) + 1, found, fix)


def is_line(value: object) -> bool:
    """Return whether a value is a short text without line breaks and control characters."""
    return isinstance(value, str) and len(value) <= 1000 and value.isprintable()


def line(word: str) -> str:
    """Return a word of a unit's command line: without line breaks, which JSON does not need. Raises CommandError."""
    if word.isprintable():
        return word
    try:
        return json.dumps(json.loads(word))
    # Too deep nesting does not raise ValueError.
    except (ValueError, RecursionError):
        found = f"a line break or another control character in {word[:60]!r}"
        raise CommandError(1, found, "write the value in one line") from None
