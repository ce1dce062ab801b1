# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options in an argv, without knowledge of a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def options(args: Iterable[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the name of each option with hyphens, its values, and its words.

    Words before the first have the name "".
    """
    name, values, found = "", list[str](), list[str]()
    for word in args:
        if word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word):
            if found:
                yield name, values, found
            name, equals, value = word.partition("=")
            name = name.replace("_", "-") if name.startswith("--") else name
            values, found = [value] if equals else [], [word]
        else:
            values, found = [*values, word], [*found, word]
    if found:
        yield name, values, found
