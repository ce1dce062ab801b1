# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names that a user may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

#: A share that is less than the best one by more than this is not suggested.
_BEHIND = 0.2


def close(name: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most ``most`` names for an unknown one: those that begin with it, else the most similar ones.

    ``cutoff``: the least similarity, from 0 to 1, as difflib has it.
    """
    there = list(names)
    longer = [each for each in there if name and re.match(rf"{re.escape(name)}[^A-Za-z]", each)]
    return sorted(longer)[:most] or difflib.get_close_matches(name, there, n=most, cutoff=cutoff)


def of_parts(name: str, names: Iterable[str], most: int, least: float) -> list[str]:
    """Return at most ``most`` names with the first part and at least this share of parts of ``name``, the best first.

    Parts are words and numbers: "gemma", "4", "26b". So another number is another name, however similar the text is.
    """
    wanted = _parts(name)
    shares = {each: _share(wanted, _parts(each)) for each in names if _parts(each)[:1] == wanted[:1]}
    least = max([least, *(share - _BEHIND for share in shares.values())])
    best = sorted((each for each, share in shares.items() if share >= least), key=lambda each: (-shares[each], each))
    return best[:most]


def _parts(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.casefold())


def _share(one: list[str], other: list[str]) -> float:
    # "20" is the beginning of "20b".
    equal = sum(any(each.startswith(part) or part.startswith(each) for each in other) for part in one)
    return equal / max(1, len(one) + len(other) - equal)
