# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, hash and write whole files."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator

#: Modes of files and folders that every user may read and only their owner may change.
READABLE, SEARCHABLE = 0o644, 0o755


def read_file(path: str) -> tuple[str | None, int | None]:
    """Return (text, permission bits) of a file, (None, None) if there is none. Raises OSError for anything else."""
    try:
        # Replaced bytes make the text differ from every file that we write, which is enough for callers.
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(), os.fstat(file.fileno()).st_mode & 0o7777
    except FileNotFoundError:
        return None, None


def exposed(path: str) -> str:
    """Return why users other than root and this one can change the content of a folder, "" if they cannot.

    The folder must not be a link. Neither it nor a folder above it may belong to another user or be writable by others;
    folders above it may be if they are sticky, such as /tmp. Raises OSError if the folder does not exist.
    """
    place, found, kept = os.path.abspath(path), os.lstat(path), 0
    if not stat.S_ISDIR(found.st_mode):
        return f"{place} is not a folder"
    while True:
        if found.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to user {found.st_uid}"
        if found.st_mode & 0o022 and not found.st_mode & kept:
            return f"other users can write to {place} (mode {found.st_mode & 0o7777:04o})"
        if place == "/":
            return ""
        place, kept = os.path.realpath(os.path.dirname(place)), stat.S_ISVTX
        found = os.lstat(place)


def read_bounded(path: str, most: int) -> str | None:
    """Return the text of an untrusted file, None if it does not exist.

    Raises OSError; ValueError for more than ``most`` bytes and for anything but a regular file.
    """
    try:
        # Opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it is longer than {most} bytes")
    return content.decode("utf-8", "replace")


def lock(path: str, seconds: float = 120.0) -> int:
    """Lock a folder for this process, and return its descriptor, which holds the lock until it is closed.

    Every user who can read the folder can lock it, too. Raises TimeoutError, which is an OSError, after ``seconds``.
    """
    descriptor, until = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError as error:
            if time.monotonic() > until:
                os.close(descriptor)
                message = f"{path} is locked by another process for {seconds:g} s; find it: fuser --verbose {path}"
                raise TimeoutError(message) from error
        time.sleep(0.1)


def sha256(path: str) -> str:
    """Return the SHA-256 of a file, which may be large. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: str, content: str | bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Replace a file atomically: at any moment the complete old or new file exists, also after a power cut.

    ``owner`` is (user ID, group ID), by default the caller's. Raises OSError; then the old file is unchanged.
    """
    folder = os.path.dirname(path) or "."
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_encoded(content))
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


def _encoded(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def owned(path: str) -> tuple[int, int, int] | None:
    """Return a path's (type and mode, UID, GID), None if it does not exist. A link is not followed. Raises OSError."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_mode, found.st_uid, found.st_gid


def installed_folder(path: str) -> bool:
    """Return whether install_folder() would change nothing. Raises OSError."""
    return owned(path) == (stat.S_IFDIR | SEARCHABLE, os.geteuid(), os.getegid())


def differs(path: str, content: str | bytes | None) -> bool:
    """Return whether install() would change the file. Raises OSError."""
    if content is None:
        return os.path.lexists(path)
    return owned(path) != (stat.S_IFREG | READABLE, os.geteuid(), os.getegid()) or _bytes(path) != _encoded(content)


def install_folder(path: str) -> None:
    """Create a folder, with the missing ones above it, or make it the caller's own. Raises OSError, also for a link."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        install_folder(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    # Independent of the umask, which a hardened host sets to 077. A link fails, because the flags exclude it.
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(folder, os.geteuid(), os.getegid())
        os.fchmod(folder, SEARCHABLE)
    finally:
        os.close(folder)


def add_folder(path: str) -> None:
    """Create a folder that every user may enter, with the missing ones above it. An existing one stays as it is.

    Raises OSError.
    """
    if not os.path.isdir(path):
        install_folder(path)


def install(path: str, content: str | bytes | None) -> None:
    """Replace a file by one of the caller's that every user may read, or remove it if ``content`` is None.

    Raises OSError.
    """
    if content is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    else:
        write_file(path, content, READABLE, (os.geteuid(), os.getegid()))


def replace(path: str, content: str | None) -> None:
    """Do as install(), but keep the mode and the owner of a present file. Raises OSError."""
    facts = os.lstat(path) if content is not None and os.path.lexists(path) else None
    if facts is None or content is None:
        install(path, content)
    else:
        write_file(path, content, stat.S_IMODE(facts.st_mode), (facts.st_uid, facts.st_gid))


@contextlib.contextmanager
def new_folder(folder: str, temporary: str) -> Iterator[str]:
    """Yield ``temporary``, an empty folder next to ``folder``. It replaces that if the block succeeds, and is removed
    otherwise. Others cannot enter it before: a file that they have opened stays writable for them.

    Raises OSError.
    """
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary, mode=0o700)
    try:
        yield temporary
        os.chmod(temporary, SEARCHABLE)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(temporary, folder)
        sync_folder(os.path.dirname(folder))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def own(folder: str) -> None:
    """Let this user alone change all entries of a folder, and everyone read them. Links are not followed.

    The folder's own mode stays. Raises OSError.
    """
    for path, folders, files in os.walk(folder):
        for entry in (os.path.join(path, name) for name in (*folders, *files)):
            os.lchown(entry, os.geteuid(), os.getegid())
            mode = os.lstat(entry).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(entry, SEARCHABLE if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else READABLE)


@contextlib.contextmanager
def part(path: str) -> Iterator[str]:
    """Yield the temporary name of a new file, which gets its own name if the block succeeds, and is removed otherwise.

    Raises OSError.
    """
    temporary = f"{path}.part"
    install(temporary, None)
    try:
        yield temporary
        os.rename(temporary, path)
    finally:
        install(temporary, None)


def free_bytes(folder: str) -> int:
    """Return the free bytes of the disk that has, or will have, the folder. Raises OSError."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def sync_folder(folder: str) -> None:
    """Make renames and removals in a folder survive a power cut."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: str) -> str:
    """Return a small file of /proc or /sys, "" if it is gone or not readable: processes may end meanwhile."""
    try:
        # The kernel escapes only the line feed in the name of a process: a carriage return must not start a line.
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            return file.read()
    except OSError:
        return ""
