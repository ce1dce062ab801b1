# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands as text that a person can copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: Most characters of a line: the module show indents it by two, and a terminal of 80 columns shows it on one row.
COLUMNS = 76
_INDENT, _NEXT = "  ", " \\"


def folded(words: Iterable[str], columns: int = COLUMNS) -> list[str]:
    """Return a command as lines that a shell reads as one.

    ``words`` are quoted; a word stays whole. One of an option and its value is divided if it is too long.
    """
    result: list[str] = []
    for word in _divided(words, columns):
        if result and len(result[-1]) + 1 + len(word) + len(_NEXT) <= columns:
            result[-1] += f" {word}"
        else:
            result.append(f"{_INDENT if result else ''}{word}")
    return [*(line + _NEXT for line in result[:-1]), *result[-1:]]


def _divided(words: Iterable[str], columns: int) -> Iterator[str]:
    for word in words:
        option, blank, value = word.partition(" ")
        long = len(_INDENT) + len(word) + len(_NEXT) > columns
        yield from (option, value) if long and blank and option.startswith("-") else (word,)
