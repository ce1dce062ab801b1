# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of a recipe's command.

A shell would run the command; here nothing does, and what needs a shell is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Outside quotes, these end a command, start another one, or redirect its input or output.
_OPERATORS = ";|&<>()\n"
#: The characters that a backslash escapes within double quotes. Source: POSIX, Shell Command Language, 2.2.3.
_ESCAPED = '"\\$`\n'
_FIELD = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]", re.ASCII)


class CommandError(Exception):
    """A command that cannot be planned. ``line``: of the command, from 1; ``found``, ``fix``: see Problem."""

    def __init__(self, line: int, found: str, fix: str) -> None:
        super().__init__(found)
        self.line, self.found, self.fix = line, found, fix


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with the values of its ``{parameters}``; doubled braces stand for one.

    Raises CommandError for a parameter without a value, and for a single brace.
    """

    def replaced(match: re.Match[str]) -> str:
        text, name = match[0], match[1]
        if text in ("{{", "}}"):
            return text[0]
        line = template.count("\n", 0, match.start()) + 1
        if name is None:
            raise CommandError(line, f"a single {text}", "double each brace that is not a parameter's")
        if name not in values:
            raise CommandError(line, f"{{{name}}} has no value", f"add defaults.{name}")
        return values[name]

    return _FIELD.sub(replaced, template)


def split(text: str) -> list[str]:
    """Return the words of one command, as a POSIX shell would split it.

    Raises CommandError for everything that only a shell could do: several commands, redirections, variables, ``~``.
    """
    return _Splitter(text.strip()).words()


class _Splitter:
    """Reads one character after another. A word is None between words."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.word: str | None = None
        self.found: list[str] = []

    def words(self) -> list[str]:
        """Return all words."""
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end()
        return self.found

    def _step(self, character: str) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if character in " \t\r":
            self._end()
        elif character == "#" and self.word is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            return
        elif character == "\\":
            self.at += 1
            if following != "\n":
                self._add(following)
        elif character == "'":
            self._add(self._quoted())
        elif character == '"':
            self._double()
        else:
            self._refuse(character)
            self._add(character)
        self.at += 1

    def _add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def _end(self) -> None:
        if self.word is not None:
            self.found.append(self.word)
        self.word = None

    def _refuse(self, character: str) -> None:
        """Raise CommandError for a character that a shell would act on, outside single quotes."""
        if character in "$`":
            raise self._error(f"{character} starts a variable or a command of a shell", "write the value itself")
        if character in _OPERATORS:
            name = "a second line without a continuation" if character == "\n" else character
            raise self._error(
                f"{name}: more than one command",
                "write one command, vllm serve; quote the character if it is part of a value",
            )
        if character == "~" and self.word is None:
            raise self._error("~ stands for a home folder of a shell", "write the whole path")

    def _quoted(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self._error("a single quote without its end", "close it")
        start, self.at = self.at + 1, end
        return self.text[start:end]

    def _double(self) -> None:
        self._add("")
        opening = self.at
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            character = self.text[self.at]
            if character == "\\" and self.text[self.at + 1 : self.at + 2] in tuple(_ESCAPED):
                self.at += 1
                character = self.text[self.at].replace("\n", "")
            elif character in "$`":
                self._refuse(character)
            self._add(character)
            self.at += 1
        if self.at >= len(self.text):
            self.at = opening
            raise self._error("a double quote without its end", "close it")

    def _error(self, found: str, fix: str) -> CommandError:
        return CommandError(self.text.count("\n", 0, self.at) + 1, found, fix)
