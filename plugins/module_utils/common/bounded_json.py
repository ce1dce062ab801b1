# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON that a stranger wrote: a model's files, what an image or a neighbour holds. Python's own reader takes more than JSON has, and any amount."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

#: No file that is read here nests deeper than 8; Python ends at some hundreds, Ansible before that.
DEPTH = 32
#: Digits of a number: those of a 64-bit integer, and more than a float has.
_DIGITS = 40


def load(text: str, most: int) -> Any:
    """Return the value. Raises ValueError with the reason for what is no JSON, longer than ``most`` characters, or nested too deep.

    NaN, infinity, numbers that overflow and integers of more than 40 digits are no values of JSON that anything here could count with.
    """
    if len(text) > most:
        raise ValueError(f"it is longer than {most} characters")
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite, parse_int=_integer)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEPTH}") from None
    if _deeper(value):
        raise ValueError(f"it is nested deeper than {DEPTH}")
    return value


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list, none where it is no list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:_DIGITS]} is too large a number")
    return number


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"{digits[:_DIGITS]}... is too large a number")
    return int(digits)


def _deeper(value: object) -> bool:
    """Whether it is nested deeper than DEPTH, level by level: a function that calls itself would end as Python does."""
    level = [value]
    for _level in range(DEPTH):
        level = [
            inner for outer in level if isinstance(outer, dict | list) for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
