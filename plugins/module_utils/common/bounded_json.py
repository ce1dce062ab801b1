# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse untrusted JSON: a model's files, or data from an image or a neighbor.

Python's parser also accepts values outside JSON, and has no size limit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

#: Files read here nest at most 8 levels. Python's parser fails at some hundreds of levels, Ansible earlier.
DEPTH = 32
#: Maximum digits of a number: more than a 64-bit integer or a float has.
_DIGITS = 40


def load(text: str, most: int) -> Any:
    """Return the value. Raises ValueError for invalid JSON, more than ``most`` characters, or too deep nesting.

    NaN, infinity, floats that overflow and integers of more than 40 digits are rejected too.
    """
    if len(text) > most:
        raise ValueError(f"it is longer than {most} characters")
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite, parse_int=_integer)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEPTH}") from None
    if deeper(value):
        raise ValueError(f"it is nested deeper than {DEPTH}")
    return value


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list, [] if ``value`` is not a list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:_DIGITS]} is too large a number")
    return number


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"{digits[:_DIGITS]}... is too large a number")
    return int(digits)


def deeper(value: object) -> bool:
    """Return whether a value nests deeper than DEPTH. Not recursive: recursion would fail as Python's parser does."""
    level = [value]
    for _level in range(DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
