# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove text that identifies a site from a report, and find any that is left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Text that may be a key.
KEY = re.compile(
    r"\b(?:hf_|sk-|nvapi-|ghp_)[\w-]{8,}|\b[0-9a-f]{24,}\b|\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}"
)
#: Text that identifies a machine or a person, or that may be a key: the replacement, and its pattern.
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "URL": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'),]+", re.IGNORECASE),
    # Also the name of a USB adapter's interface, which has its hardware address.
    "MAC": re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|\benx[0-9a-f]{12}\b", re.IGNORECASE),
    "ADDRESS": re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?\b"),
    "ADDRESS6": re.compile(
        r"(?<![\w:.])(?:[0-9a-f]{1,4}:){2,7}[0-9a-f]{0,4}|(?<![\w:.])[0-9a-f]{0,4}::[0-9a-f:]*", re.IGNORECASE
    ),
    "UUID": re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE),
    "EMAIL": re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"),
    "KEY": KEY,
    # Folders of the system and of this collection, and the API's state, are the same everywhere.
    "PATH": re.compile(
        r"(?<![\w./])/(?!(?:opt/gb10|health|etc|usr|run|proc|sys|dev|var/lib/gb10)(?:/|\b))[\w.@+-]+(?:/[\w.@+-]*)*"
    ),
}


def redacted(value: Any, known: Mapping[str, str]) -> Any:
    """Return plain data with all identifying text replaced. ``known``: the site's own names and their replacements.

    Keys stay: a report has only those of its own schema.
    """
    if isinstance(value, str):
        return _text(value, known)
    if isinstance(value, Mapping):
        return {key: redacted(each, known) for key, each in value.items()}
    return [redacted(each, known) for each in value] if isinstance(value, list | tuple) else value


def _text(text: str, known: Mapping[str, str]) -> str:
    for name in sorted(filter(None, known), key=len, reverse=True):
        text = _whole(name).sub(known[name], text)
    for replacement, pattern in _PATTERNS.items():
        text = pattern.sub(replacement, text)
    return text


def _whole(name: str) -> re.Pattern[str]:
    """Return a pattern for a name that is not a part of a longer word."""
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)


def leaks(value: Any, known: Mapping[str, str]) -> list[str]:
    """Return the kinds of identifying text that plain data still has, sorted and without the text itself."""
    found = set()
    for text in _texts(value):
        found |= {kind for kind, pattern in _PATTERNS.items() if pattern.search(text)}
        found |= {"NAME" for name, new in known.items() if name and name != new and _whole(name).search(text)}
    return sorted(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
