"""List files on a host that users other than root can change, directly or through a folder above: who_can_write.py USER
PATH ...

It runs on the host and needs only Python. It prints a JSON object, path -> reason, for every path below the given ones,
every folder above them, and all targets of their symbolic links. USER and all of its groups must not be able to write.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
import sys
from pathlib import Path


def groups_of(user: str) -> set[int]:
    return {pwd.getpwnam(user).pw_gid, *(group.gr_gid for group in grp.getgrall() if user in group.gr_mem)}


def why(path: str, groups: set[int], above: bool) -> str:
    """Return why a user other than root can change this path, "" if none can.

    ``above``: only content further below this folder counts.
    """
    found = os.lstat(path)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != 0:
        return f"belongs to {found.st_uid}"
    # A link's mode has no effect, and in a sticky folder other users cannot move root's files.
    if stat.S_ISLNK(found.st_mode) or (above and mode & stat.S_ISVTX):
        return ""
    if mode & 0o002 or (mode & 0o020 and found.st_gid in groups):
        return f"mode {mode:04o}, group {found.st_gid}"
    if "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False):
        return "it has an access list"
    return ""


def place(path: str) -> str:
    """Return the path with resolved folders. The last component may be a link."""
    return str(Path(path).parent.resolve() / Path(path).name)


def changeable(paths: list[str], groups: set[int]) -> dict[str, str]:
    """Return path -> reason for these paths, their content and their links' targets."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    roots = [place(path) for path in paths if os.path.lexists(path)]
    todo = list(roots)
    folders: set[str] = set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        folders.update(map(str, Path(path).parents))
        if reason := why(path, groups, above=False):
            found[path] = reason
        todo += followed(path, roots)
    for folder in folders - seen:
        if reason := why(folder, groups, above=True):
            found[folder] = reason
    return found


def followed(path: str, roots: list[str]) -> list[str]:
    """Return a link's target, and the content of a folder below the roots."""
    if Path(path).is_symlink():
        target = os.path.realpath(path)
        # Ignore dangling links and links into the kernel's file systems.
        return [target] if os.path.lexists(target) and not target.startswith(("/proc/", "/sys/", "/dev/")) else []
    if Path(path).is_dir() and any(path == root or path.startswith(f"{root}/") for root in roots):
        return [entry.path for entry in os.scandir(path)]
    return []


if __name__ == "__main__":
    sys.stdout.write(json.dumps(changeable(sys.argv[2:], groups_of(sys.argv[1]))))
