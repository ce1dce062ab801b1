# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of evidence: plain data with names, which the controller redacts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Bounds of a value: entries of a list, and characters of a text.
MOST_ENTRIES, MOST_TEXT = 500, 600


def bounded(value: Any) -> Any:
    """Return a value within the limits. Control characters become spaces."""
    if isinstance(value, str):
        return cut(" ".join("".join(char if char.isprintable() else " " for char in value).split()))
    if isinstance(value, Mapping):
        return {cut(str(key)): bounded(each) for key, each in list(value.items())[:MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [bounded(each) for each in value[:MOST_ENTRIES]]
    return value if value is None or isinstance(value, bool | int | float) else cut(str(value))


def cut(text: str) -> str:
    """Return the begin of a text, in whole words: a part of a key has another form."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 4].rpartition(' ')[0]} ..."
