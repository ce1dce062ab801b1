# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prepare a folder for the wheels of a lock, download them, pack them for other nodes, or unpack them there.

The wheels are in its folder ``wheels``, the lock is ``requirements.lock``.
"""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_root_files
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import refuse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_wheelhouse, wheelhouse


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs: the folder, and ``device``, ``download``, ``pack`` or ``archive``.

    ``folder``: The folder.
    ``device``: The device of the stack, which decides the disk space to verify before the folder is created.
    ``lock``: The text of the lock, to write with ``device``.
    ``download``: The interpreter, by name or path, whose wheels pip downloads.
    ``index_url``: The package index, empty for that of pip.
    ``pack``: The file to write, with the wheels that the lock pins.
    ``archive``: Such a file of another node, whose wheels are added. Each one's SHA-256 must be in the lock.
    """

    folder: str = field(metadata={"type": "path"})
    device: str | None = field(default=None, metadata={"choices": ["cuda", "cpu"]})
    lock: str = ""
    download: str = ""
    index_url: str = ""
    pack: str | None = field(default=None, metadata={"type": "path"})
    archive: str | None = field(default=None, metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {packed_sha256: of ``pack``} or {wheels: the number in ``archive``}, neither in check mode."""
    folder, changed, result = given.folder, True, dict[str, Any]()
    if given.device:
        changed = _prepare(folder, given.device, given.lock, module.check_mode)
    elif given.download and not module.check_mode:
        io_wheelhouse.download(runner(module), folder, given.download, given.index_url)
    elif not module.check_mode:
        result = _exchange(given)
    return {"changed": changed, "diff": {"before": "", "after": f"{folder}\n" if changed else ""}, **result}


def _prepare(folder: str, device: str, lock: str, check: bool) -> bool:
    """Create the folder with the lock, and return whether one was missing. Raises ProblemsError, OSError."""
    wheels, path = f"{folder}/wheels", f"{folder}/{wheelhouse.LOCK}"
    # Files that an interrupted run left need no more space.
    if not os.path.isdir(wheels):
        refuse(wheelhouse.check_disk(folder, io_file.free_bytes(folder), device))
    due = io_root_files.change([folder, wheels], {path: lock})
    if not check:
        due.install()
    return due.due


def _exchange(given: Inputs) -> dict[str, Any]:
    """Pack or unpack the wheels of the lock. Raises ProblemsError, OSError, ValueError."""
    wheels = f"{given.folder}/wheels"
    wanted = wheelhouse.hashes(io_file.read_file(f"{given.folder}/{wheelhouse.LOCK}")[0] or "")
    if given.pack:
        io_file.install_folder(os.path.dirname(given.pack))
        return {"packed_sha256": io_wheelhouse.pack(wheels, wanted, given.pack)}
    if not given.archive:
        raise ValueError("one of the following is required: device, download, pack, archive")
    try:
        return {"wheels": io_wheelhouse.unpack(given.archive, wheels, wanted)}
    except tarfile.TarError as error:
        raise ValueError(str(error)) from error
