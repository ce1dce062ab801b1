# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects as YAML: the same text for the same objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_HEADER = "# Written by gb10.cluster's playbooks/export.yml from the plan. It contains no secrets, only their names.\n"
#: Texts that need no quotes in YAML 1.1 and 1.2.
_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[A-Za-z/][A-Za-z0-9./_-]*", re.IGNORECASE | re.ASCII)
#: Texts of several lines that a literal block holds unchanged.
_BLOCK = re.compile(r"(?=[^ \n])(?:(?:[ -~]*[!-~])?\n)+(?<!\n\n)", re.ASCII)


def documents(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return the objects as a stream of YAML documents."""
    return _HEADER + "".join("".join(["---\n", *(f"{line}\n" for line in _lines(each))]) for each in objects)


def _lines(value: Any) -> Iterator[str]:
    """Yield the lines of a mapping or a list that is not empty."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _entry(f"{_scalar(key)}:", each)
    else:
        for each in value:
            yield from _item(each)


def _entry(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list) and value:
        yield key
        yield from _indented(_lines(value))
    elif isinstance(value, str) and "\n" in value and _BLOCK.fullmatch(value):
        yield f"{key} |"
        yield from _indented(value[:-1].split("\n"))
    else:
        yield f"{key} {_scalar(value)}"


def _item(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list) and value:
        first, *others = _lines(value)
        yield f"- {first}"
        yield from _indented(others)
    else:
        yield f"- {_scalar(value)}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" if line else "" for line in lines)


def _scalar(value: Any) -> str:
    """Return a value on one line. JSON is YAML, except for its two escapes of a character beyond 16 bits."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value):
        return value
    characters = (f"\\U{ord(each):08x}" if ord(each) > 0xFFFF else json.dumps(each)[1:-1] for each in value)
    return f'"{"".join(characters)}"'
