# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of this collection that run on nodes, read on the controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

_CORE = Path(__file__).resolve().parents[1] / "module_utils"


def text(program: str) -> str:
    """Return a program by its path below plugins/module_utils. Raises ValueError for any other file."""
    path = (_CORE / program).resolve()
    if _CORE not in path.parents or not path.is_file():
        raise ValueError(f"{program!r} is not a file of this collection below plugins/module_utils")
    return path.read_text(encoding="utf-8")


def with_contents(files: Any) -> list[dict[str, Any]]:
    """Return the entries of a module's option files, with each program replaced by its content.

    Raises AnsibleActionFail for other data than a list of mappings, and for a program that the collection does not have.
    """
    if not isinstance(files, list) or not all(isinstance(entry, dict) for entry in files):
        raise AnsibleActionFail("files: expected: a list of mappings with path and content, program or state")
    return [_with_content(entry) for entry in files]


def _with_content(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "program" not in entry:
        return dict(entry)
    try:
        content = text(str(entry["program"]))
    except ValueError as error:
        raise AnsibleActionFail(f"files: program: {error}") from error
    return {**{key: value for key, value in entry.items() if key != "program"}, "content": content}
