# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an untrusted JSON file."""

from __future__ import annotations

from typing import Any, TypeVar

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file

#: Maximum characters of a JSON file. The index of a model with 100000 tensors has 12 million.
MOST_JSON = 1 << 25
_Value = TypeVar("_Value")


def json_file(path: str, most: int = MOST_JSON) -> dict[str, Any] | None:
    """Return the object in a JSON file, None if it does not exist. Raises ValueError for other content."""
    return _read(path, most, dict, "object")


def json_list(path: str, most: int = MOST_JSON) -> list[Any] | None:
    """Return the list in a JSON file, None if it does not exist. Raises ValueError for other content."""
    return _read(path, most, list, "list")


def _read(path: str, most: int, kind: type[_Value], word: str) -> _Value | None:
    try:
        text = io_file.read_bounded(path, most)
        found = None if text is None else bounded_json.load(text, most)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if text is not None and not isinstance(found, kind):
        raise ValueError(f"{path} is not a JSON {word}")
    return found
