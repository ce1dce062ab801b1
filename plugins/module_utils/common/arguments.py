# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options in an argv, without knowledge of a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

#: An option with members, such as --hf-overrides.a.b or -O.mode.
_MEMBER = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z]\w*)\.[^=\s]+")


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


def moved(args: Sequence[str]) -> Iterator[int]:
    """Yield the position of each word that vLLM would move to another place than it is read here.

    vLLM takes each word that begins with - and has a dot before = for an option with members, takes the next word as
    its value if it has no =, and moves both to the end. So -0.5 hides the word behind it, and a further word becomes a
    value of the option before. Source: vLLM 0.33, utils/argparse_utils.py.
    """
    for index, given in enumerate(args):
        # -O3 becomes an option and a value before.
        word = given.removeprefix("-O").removeprefix("=") if re.match(r"-O[^.]", given) else given
        name, equals, _value = word.partition("=")
        if word.startswith("-") and "." in name:
            behind = args[index + 1 : index + (2 if equals else 3)]
            # argparse takes -0 for a value.
            ends = [bool(re.match(r"-(?!\d+$)", each)) for each in behind] + [True]
            # Without =, one word, and then an option or the end.
            if not _MEMBER.fullmatch(name) or not (ends[0] if equals else behind and not ends[0] and ends[1]):
                yield index
