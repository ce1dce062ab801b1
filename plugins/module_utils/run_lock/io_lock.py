# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take, release and read a cluster's lock on its head; on the controller, identify the owner.

A writer holds flock on the folder while it reads and writes, so two simultaneous runs cannot both find it free.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import os
import platform
import secrets
import stat
import subprocess
import time
from collections.abc import Iterator

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock.plan import Lock, LockError, Owner

_NEW = f"{run_lock_plan.FILE}.new"
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def hold(folder: str, owner: Owner, breaks: str) -> tuple[Lock, Lock | None]:
    """Return (the current lock, the one it replaced). If another run holds the lock, it is that run's lock.

    ``breaks``: the id of a lock to ignore. Raises LockError, OSError.
    """
    with _alone(folder) as place:
        found = _read(place)
        if found is not None and found.id != breaks:
            return found, None
        taken = Lock(secrets.token_hex(4), time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()), now(), owner)
        descriptor = os.open(_NEW, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN, 0o600, dir_fd=place)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(run_lock_plan.text(taken))
        os.replace(_NEW, run_lock_plan.FILE, src_dir_fd=place, dst_dir_fd=place)
        return taken, found


def release(folder: str, owner: Owner) -> Lock | None:
    """Release this owner's lock. Return the lock if another owner holds it, else None. Raises LockError, OSError."""
    if not os.path.lexists(folder):
        return None
    with _alone(folder) as place:
        found = _read(place)
        if found is None or not found.owner.runs(owner):
            return found
        os.unlink(run_lock_plan.FILE, dir_fd=place)
        return None


def look(folder: str) -> Lock | None:
    """Return the current lock, None without one. Raises LockError, OSError."""
    try:
        with _folder(folder) as place:
            return _read(place)
    except FileNotFoundError:
        return None


def now() -> float:
    """Return the seconds since this machine booted, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[int]:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    with _folder(folder) as place:
        # Released when the folder is closed, or when this process ends.
        fcntl.flock(place, fcntl.LOCK_EX)
        yield place


@contextlib.contextmanager
def _folder(folder: str) -> Iterator[int]:
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise LockError(f"{folder} is not a folder") from None
    try:
        facts = os.fstat(place)
        if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise LockError(f"other users may write to {folder}")
        yield place
    finally:
        os.close(place)


def _read(place: int) -> Lock | None:
    try:
        descriptor = os.open(run_lock_plan.FILE, os.O_RDONLY | _OPEN, dir_fd=place)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LockError("it is not a regular file")
        return run_lock_plan.parse(file.read(run_lock_plan.MOST_TEXT + 1).decode("ascii", "replace"))


def owner(pid: int, playbook: str) -> Owner:
    """Return the run of a process on this machine, the controller."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return Owner(
        run_lock_plan.word(user),
        run_lock_plan.word(platform.node()),
        run_lock_plan.word(playbook),
        boot(),
        pid,
        started(pid),
    )


def boot() -> str:
    """Return an ID of this boot and process number namespace, "" if unavailable."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            kernel = file.read().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:  # macOS
        kernel = _output("sysctl", "-n", "kern.bootsessionuuid")
    return hashlib.sha256(kernel.encode()).hexdigest()[:32] if kernel else ""


def started(pid: int) -> str:
    """Return the start time of a process of this machine, "" if it does not exist or has ended."""
    if not os.path.isdir("/proc/self"):
        return " ".join(_output("ps", "-o", "lstart=", "-p", str(pid)).split())
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _output(*command: str) -> str:
    try:
        # The controller has no module with run_command.
        # pylint: disable-next=ansible-bad-function
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
