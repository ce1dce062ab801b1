# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading, hashing and writing whole files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile

#: Mode of a file that every user may read.
READABLE = 0o644


def read_file(path: str) -> tuple[str | None, int | None]:
    """Return (text, permission bits) of a file, (None, None) if there is none. Raises OSError for anything else."""
    try:
        # What is no UTF-8 differs from all that we write, which is all a caller wants to know.
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(), os.fstat(file.fileno()).st_mode & 0o7777
    except FileNotFoundError:
        return None, None


def exposed(path: str) -> str:
    """Return why others than root and this user may change what lies in a folder, "" if they may not. Raises OSError if it is not there.

    The folder may be no link, and neither it nor one above may be another's or open to others; above it a sticky one such as /tmp may.
    """
    place, found, kept = os.path.abspath(path), os.lstat(path), 0
    if not stat.S_ISDIR(found.st_mode):
        return f"{place} is no folder"
    while True:
        if found.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to the user {found.st_uid}"
        if found.st_mode & 0o022 and not found.st_mode & kept:
            return f"others may write into {place} (mode {found.st_mode & 0o7777:04o})"
        if place == "/":
            return ""
        place, kept = os.path.realpath(os.path.dirname(place)), stat.S_ISVTX
        found = os.lstat(place)


def read_bounded(path: str, most: int) -> str | None:
    """Return the text of a file that a stranger wrote, None if there is none. Raises ValueError for more than ``most`` bytes, or no file; OSError."""
    try:
        # What waits for a writer, such as a FIFO, does not hold us up.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it is longer than {most} bytes")
    return content.decode("utf-8", "replace")


def sha256(path: str) -> str:
    """Return the SHA-256 of a file, which may be large. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: str, content: str | bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file so that at any moment either the old or the new one is there, whole, and survives a power cut.

    ``owner`` is (user, group) by number, by default the writer's own. Raises OSError; then the old file is untouched.
    """
    folder = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def install(path: str, text: str | None) -> None:
    """Write a file of the caller's that every user may read, with its folders; remove it where ``text`` is None. Raises OSError."""
    if text is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    # Independent of the caller's umask, which a hardened host sets to 077.
    missing = []
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        os.mkdir(folder)
        os.chmod(folder, 0o755)
    write_file(path, text, READABLE, (os.geteuid(), os.getegid()))


def sync_folder(folder: str) -> None:
    """Make what was renamed or removed in a folder survive a power cut."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: str) -> str:
    """Return a small file of /proc or /sys, or "" if it is gone or closed to us: processes end while they are read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
