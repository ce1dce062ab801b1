# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders and files that every user may read and root alone may change, with their differences."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, program

#: The argument_spec of an entry.
ENTRY: dict[str, Any] = {
    "type": "list",
    "elements": "dict",
    "default": [],
    "options": {
        "path": {"type": "path", "required": True},
        "content": {"type": "str"},
        "program": {"type": "str"},
        "packed": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "mutually_exclusive": [("content", "program", "packed")],
    "required_if": [("state", "present", ["content", "packed"], True)],
}


@dataclass(frozen=True)
class Change:
    """Folders to create or correct, and path -> content of files to write, None of those to remove."""

    folders: list[str]
    files: dict[str, str | bytes | None]

    @property
    def due(self) -> bool:
        """Whether anything differs."""
        return bool(self.folders or self.files)

    @property
    def paths(self) -> list[str]:
        """The paths that differ."""
        return [*self.folders, *self.files]

    def difference(self) -> list[dict[str, str]]:
        """Return the difference of each path. Raises OSError."""
        folders = [_difference(path, "", "folder, mode 0755\n") for path in self.folders]
        return folders + [each for path, content in self.files.items() for each in _differences(path, content)]

    def install(self) -> None:
        """Write and remove what differs. Raises OSError."""
        for path in self.folders:
            io_file.install_folder(path)
        for path, content in self.files.items():
            io_file.install(path, content)


def wanted(entries: Iterable[Mapping[str, Any]]) -> dict[str, str | bytes | None]:
    """Return path -> content of entries, None of those that must not exist."""
    return {str(entry["path"]): None if entry["state"] == "absent" else program.content(entry) for entry in entries}


def change(folders: Iterable[str], files: Mapping[str, str | bytes | None]) -> Change:
    """Return what differs on the node. Raises OSError."""
    return Change(
        [path for path in folders if not io_file.installed_folder(path)],
        {path: content for path, content in files.items() if io_file.differs(path, content)},
    )


def _differences(path: str, content: str | bytes | None) -> list[dict[str, str]]:
    """Return the difference of a file, or those of the changed sources of a packed program."""
    if not isinstance(content, bytes):
        return [_difference(path, _before(path), content or "")]
    before, after = _sources(path), program.sources(content)
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return [_difference(f"{path}/{name}", before.get(name, ""), after.get(name, "")) for name in names]


def _sources(path: str) -> dict[str, str]:
    """Return name -> text of an installed program's files, {} if there is none."""
    if not os.path.isfile(path) or os.path.islink(path):
        return {}
    with open(path, "rb") as file:
        return program.sources(file.read())


def _before(path: str) -> str:
    """Return the text of a file. The difference must not show the target of a link."""
    return io_file.read_file(path)[0] or "" if os.path.isfile(path) and not os.path.islink(path) else ""


def _difference(path: str, before: str, after: str) -> dict[str, str]:
    return {"before_header": path, "after_header": path, "before": before, "after": after}
