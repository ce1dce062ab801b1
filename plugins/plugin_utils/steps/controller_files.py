# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write files on the controller, as the user who runs Ansible.

A copy of Ansible would be delegated to localhost, where the inventory could set another user or connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``files``: Path -> text. A relative path starts at the working directory.
    ``private``: Whether only this user may read the files, and enter folders that the task creates.
    """

    files: Mapping[str, str] = field(metadata={"type": "dict"})
    private: bool = False


def run(step: Decision, given: Inputs, _variables: dict[str, Any]) -> dict[str, Any]:
    """Return {changed, diff}, or why a file could not be written."""
    mode, folder_mode = (0o600, 0o700) if given.private else (io_file.READABLE, io_file.SEARCHABLE)
    changed = []
    try:
        for name, text in given.files.items():
            # A link in the file's place is replaced, not followed.
            folder = Path(name).expanduser().parent.resolve()
            path = folder / Path(name).name
            before, before_mode = (None, None) if path.is_symlink() else io_file.read_file(str(path))
            if (before, before_mode) == (text, mode):
                continue
            header = {"before_header": str(path), "after_header": str(path)}
            changed.append({**header, "before": before or "", "after": text})
            if not step.check_mode:
                for each in reversed([folder, *folder.parents]):
                    each.mkdir(mode=folder_mode, exist_ok=True)
                io_file.write_file(str(path), text, mode)
    except OSError as error:
        return {"failed": True, "msg": str(error)}
    return {"changed": bool(changed), "diff": changed if step.shows_difference else []}
