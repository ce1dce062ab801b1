# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Download the wheels of a lock, pack them for other nodes, and unpack them there.

Each file of an archive is read and verified as a stream.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from typing import IO

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_tar
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import refuse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import wheelhouse

_CHUNK = 2**20
#: pip runs no code of these packages, and installs nothing.
_DOWNLOAD = (
    "download",
    "--quiet",
    "--disable-pip-version-check",
    "--no-deps",
    "--require-hashes",
    "--only-binary=:all:",
    "--timeout=60",
)


def download(run: Run, folder: str, python: str, index: str) -> None:
    """Download the wheels of the folder's lock with pip.

    ``python``: the interpreter whose wheels they are. ``index``: the address of the package index, "" for pip's own.
    pip's cache keeps finished files for the next run. Raises ProblemsError, OSError.
    """
    pip, part, cache = (f"{folder}/{name}" for name in ("pip", "part", "cache"))
    # The node may have no pip outside of environments.
    if not os.path.isfile(f"{pip}/bin/pip"):
        status, stdout, stderr = run([python, "-m", "venv", pip])
        refuse(wheelhouse.venv_problems(status, python, f"{stdout} {stderr}"))
    os.makedirs(part, 0o700, exist_ok=True)
    places = [f"--cache-dir={cache}", f"--dest={folder}/wheels", f"--requirement={folder}/{wheelhouse.LOCK}"]
    # The temporary directory of the node may be in memory.
    variables = [f"TMPDIR={part}", *([f"PIP_INDEX_URL={index}"] if index else [])]
    status, _stdout, stderr = run(["env", *variables, f"{pip}/bin/pip", *_DOWNLOAD, *places])
    problems = wheelhouse.pip_problems(status, stderr)
    full = wheelhouse.DISK_FULL in stderr
    for place in [folder] if problems and full else [part] if problems else [part, cache, pip]:
        shutil.rmtree(place, ignore_errors=True)
    refuse(problems)


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
