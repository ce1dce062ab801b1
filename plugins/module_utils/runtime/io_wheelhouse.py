# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack the wheels of a lock for other nodes, and unpack them there. Each file is read and verified as a stream."""

from __future__ import annotations

import hashlib
import os
import tarfile
from typing import IO

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_tar
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import refuse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import wheelhouse

_CHUNK = 2**20


def free_bytes(folder: str) -> int:
    """Return the free bytes of the disk that has, or will have, the folder. Raises OSError."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def pack(folder: str, wanted: frozenset[str], path: str) -> str:
    """Write the folder's wheels that the lock pins to a tar file, completely or not at all, and return its SHA-256.

    Other files of the folder stay where they are. Raises OSError.
    """
    with io_file.part(path) as part:
        with tarfile.open(part, "w") as archive:
            for name in sorted(os.listdir(folder)):
                source = f"{folder}/{name}"
                if wheelhouse.NAME.fullmatch(name) and io_file.sha256(source) in wanted:
                    archive.add(source, name, recursive=False, filter=_plain)
        os.chmod(part, io_file.READABLE)
    return io_file.sha256(path)


def unpack(path: str, folder: str, wanted: frozenset[str]) -> int:
    """Add the wheels of another node's tar file to the folder, and return their number.

    A file gets its name after its hash was found in the lock. Raises ProblemsError, tarfile.TarError, OSError.
    """
    number, size = -1, os.path.getsize(path)
    with tarfile.open(path, "r:") as archive:
        for number, entry in enumerate(archive):
            source = io_tar.plain(archive, entry, size)
            refuse(wheelhouse.check_entry(entry.name, source is not None, number))
            if source is None:  # it is refused above
                continue
            with io_file.part(f"{folder}/{entry.name}") as part:
                refuse(wheelhouse.check_wheel(entry.name, _copy(source, part), wanted))
    return number + 1


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = io_file.READABLE
    return entry


def _copy(source: IO[bytes], path: str) -> str:
    """Write a file, and return its SHA-256. Raises OSError."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, io_file.READABLE)
    with open(descriptor, "wb") as file:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()
