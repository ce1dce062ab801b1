# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an untrusted JSON file."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file

#: Maximum characters of a JSON file. The index of a model with 100000 tensors has 12 million.
MOST_JSON = 1 << 25
#: No value of a JSON file.
_ABSENT = object()


def json_file(path: str, most: int = MOST_JSON) -> dict[str, Any] | None:
    """Return the object in a JSON file, None if it does not exist. Raises ValueError for other content."""
    found = _read(path, most)
    if found is not _ABSENT and not isinstance(found, dict):
        raise ValueError(f"{path} is not a JSON object")
    return found if isinstance(found, dict) else None


def json_list(path: str, most: int = MOST_JSON) -> list[Any] | None:
    """Return the list in a JSON file, None if it does not exist. Raises ValueError for other content."""
    found = _read(path, most)
    if found is not _ABSENT and not isinstance(found, list):
        raise ValueError(f"{path} is not a JSON list")
    return found if isinstance(found, list) else None


def _read(path: str, most: int) -> Any:
    """Return the value in a JSON file, _ABSENT without one. Raises ValueError."""
    try:
        text = io_file.read_bounded(path, most)
        return _ABSENT if text is None else bounded_json.load(text, most)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
