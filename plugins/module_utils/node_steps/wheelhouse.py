# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prepare a folder for the wheels of a lock, pack them for other nodes, or unpack them there.

The wheels are in its folder ``wheels``, the lock is ``requirements.lock``.
"""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import refuse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_wheelhouse, wheelhouse


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs: the folder, and one of the others.

    ``folder``: The folder.
    ``device``: The device of the stack, which decides the disk space to verify before the folder is created.
    ``pack``: The file to write, with the wheels that the lock pins.
    ``archive``: Such a file of another node, whose wheels are added. Each one's SHA-256 must be in the lock.
    """

    folder: str = field(metadata={"type": "path"})
    device: str | None = field(default=None, metadata={"choices": ["cuda", "cpu"]})
    pack: str | None = field(default=None, metadata={"type": "path"})
    archive: str | None = field(default=None, metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {packed_sha256: of ``pack``} or {wheels: the number in ``archive``}, neither in check mode."""
    folder, changed, result = given.folder, True, dict[str, Any]()
    if given.device:
        changed = _prepare(folder, given.device, module.check_mode)
    elif not module.check_mode:
        result = _exchange(given)
    return {"changed": changed, "diff": {"before": "", "after": f"{folder}\n" if changed else ""}, **result}


def _prepare(folder: str, device: str, check: bool) -> bool:
    """Create the folder, and return whether it was missing. Raises ProblemsError, OSError."""
    wheels = f"{folder}/wheels"
    # Files that an interrupted run left need no more space.
    if not os.path.isdir(wheels):
        refuse(wheelhouse.check_disk(folder, io_wheelhouse.free_bytes(folder), device))
    missing = [each for each in (folder, wheels) if not io_file.installed_folder(each)]
    for each in missing:
        if not check:
            io_file.install_folder(each)
    return bool(missing)


def _exchange(given: Inputs) -> dict[str, Any]:
    """Pack or unpack the wheels of the lock. Raises ProblemsError, OSError, ValueError."""
    wheels = f"{given.folder}/wheels"
    wanted = wheelhouse.hashes(io_file.read_file(f"{given.folder}/requirements.lock")[0] or "")
    if given.pack:
        io_file.install_folder(os.path.dirname(given.pack))
        return {"packed_sha256": io_wheelhouse.pack(wheels, wanted, given.pack)}
    if not given.archive:
        raise ValueError("one of the following is required: device, pack, archive")
    try:
        return {"wheels": io_wheelhouse.unpack(given.archive, wheels, wanted)}
    except tarfile.TarError as error:
        raise ValueError(str(error)) from error
