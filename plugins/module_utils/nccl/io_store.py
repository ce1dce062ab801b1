# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The store of NCCL builds on a host: a folder for each build, complete or absent, and a link to the current one.

STORE/2.30.7-0123456789ab/lib/libnccl.so.2.30.7     and the links libnccl.so.2 and libnccl.so
STORE/2.30.7-0123456789ab/stamp.json                the inputs of the build, and the library's SHA-256
STORE/current                                       a link to the current build
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_tar
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError

STAMP, LIBRARY = "stamp.json", "lib/libnccl.so.2"
#: The largest packed build, in bytes, and its most entries. A library for all GPUs has 400 MB.
_MOST_ARCHIVE, _MOST_ENTRIES = 1 << 30, 100
_LIBRARY = re.compile(r"lib/libnccl\.so\.\d+(\.\d+){2,3}")


def stamp(store: str, name: str) -> dict[str, Any] | None:
    """Return the stamp of a build, None if the build is missing or its library does not match the stamp."""
    text, _mode = io_file.read_file(f"{store}/{name}/{STAMP}")
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    path = f"{store}/{name}/{LIBRARY}"
    return (
        found
        if isinstance(found, dict) and os.path.isfile(path) and io_file.sha256(path) == found.get("sha256")
        else None
    )


@contextlib.contextmanager
def part(store: str, name: str) -> Iterator[str]:
    """Yield a temporary folder. It replaces the build if the block succeeds, and is removed otherwise."""
    # An existing folder is broken, otherwise the caller would not build it again.
    with io_file.new_folder(f"{store}/{name}", f"{store}/.{name}.part") as temporary:
        io_file.add_folder(f"{temporary}/lib")
        yield temporary
        for file in (f"{temporary}/{LIBRARY}", f"{temporary}/{STAMP}"):
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())


def fill(folder: str, library: str, content: Mapping[str, Any]) -> None:
    """Copy a library and its stamp into a folder of part()."""
    name = os.path.basename(library)
    shutil.copyfile(library, f"{folder}/lib/{name}")
    os.chmod(f"{folder}/lib/{name}", io_file.SEARCHABLE)
    _link(folder, name)
    io_file.write_file(f"{folder}/{STAMP}", json.dumps(content, indent=2, sort_keys=True) + "\n", io_file.READABLE)


def _link(folder: str, name: str) -> None:
    os.symlink(name, f"{folder}/{LIBRARY}")
    os.symlink("libnccl.so.2", f"{folder}/lib/libnccl.so")


def pack(store: str, name: str, path: str) -> str:
    """Pack a build reproducibly for other hosts, and return the file's SHA-256."""
    os.makedirs(os.path.dirname(path), mode=io_file.SEARCHABLE, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for place in sorted(glob.glob(f"{glob.escape(store)}/{name}/**", recursive=True))[1:]:
            archive.add(place, os.path.relpath(place, f"{store}/{name}"), recursive=False, filter=_plain)
    return io_file.sha256(path)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    # unpack() sets its own. Others can read this, too.
    entry.mode = io_file.SEARCHABLE
    return entry


def unpack(path: str, sha256: str, folder: str) -> None:
    """Unpack a packed build into a folder of part(). Raises ProblemsError for another SHA-256, and for other content.

    The SHA-256 comes from the head too, so the archive may have any content: only a library and its stamp are read.
    """
    with open(path, "rb") as file:
        content = file.read(_MOST_ARCHIVE + 1)
    if len(content) > _MOST_ARCHIVE:
        raise ProblemsError(
            [Problem("artifact", f"{path} is larger", f"at most {_MOST_ARCHIVE} bytes", "build it again")]
        )
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ProblemsError([Problem("artifact", f"{path} has sha256 {found}", sha256, "send the file again")])
    files: dict[str, bytes] = {}
    try:
        # Without compression: a kilobyte could become gigabytes.
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for entry in itertools.islice(archive, _MOST_ENTRIES):
                # The links and folders are made here, and other entries have no use.
                opened = io_tar.plain(archive, entry, len(content))
                if opened and (entry.name == STAMP or _LIBRARY.fullmatch(entry.name)):
                    files[entry.name] = opened.read()
    except tarfile.TarError as error:
        raise ProblemsError(
            [Problem("artifact", f"{path}: {error}", "a packed build", "send the file again")]
        ) from error
    if len(files) != len((STAMP, LIBRARY)) or STAMP not in files:
        found = f"{path} has {', '.join(sorted(files)) or 'no such files'}"
        raise ProblemsError([Problem("artifact", found, f"{STAMP} and one library", "send the file again")])
    name = next(name for name in files if name != STAMP)
    io_file.write_file(f"{folder}/{name}", files[name], io_file.SEARCHABLE)
    _link(folder, os.path.basename(name))
    io_file.write_file(f"{folder}/{STAMP}", files[STAMP], io_file.READABLE)


def names(store: str) -> list[str]:
    """Return the builds in the store, newest first."""
    found = [path for path in glob.glob(f"{glob.escape(store)}/*/{STAMP}") if not os.path.islink(os.path.dirname(path))]
    return [os.path.basename(os.path.dirname(path)) for path in sorted(found, key=os.path.getmtime, reverse=True)]


def current(store: str) -> str | None:
    """Return the name of the current build."""
    path = f"{store}/current"
    return os.path.basename(os.readlink(path)) if os.path.islink(path) else None


def use(store: str, name: str) -> None:
    """Point current at a build, atomically."""
    with io_file.part(f"{store}/current") as temporary:
        os.symlink(name, temporary)
    io_file.sync_folder(store)
