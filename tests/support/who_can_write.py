"""Which files of a host somebody else than root can change, by the file itself or by a folder above it: who_can_write.py USER PATH ...

A program for the host, which needs nothing but Python: a JSON object on stdout, path -> why, of every path below the given ones, every folder
above them, and whatever their symbolic links lead to. USER is the one who must not, with all of its groups.
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
    """Return why somebody else can change what lies here, "" if nobody can; ``above`` says that only what lies further below counts."""
    found = os.lstat(path)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != 0:
        return f"belongs to {found.st_uid}"
    # The mode of a link means nothing; in a sticky folder nobody can move what is root's.
    if stat.S_ISLNK(found.st_mode) or (above and mode & stat.S_ISVTX):
        return ""
    if mode & 0o002 or (mode & 0o020 and found.st_gid in groups):
        return f"mode {mode:04o}, group {found.st_gid}"
    if "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False):
        return "it has an access list"
    return ""


def place(path: str) -> str:
    """Return where a path lies, which may be a link itself, by folders that are none."""
    return str(Path(path).parent.resolve() / Path(path).name)


def changeable(paths: list[str], groups: set[int]) -> dict[str, str]:
    """Return path -> why for all that these paths are, hold and lead to."""
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
        if Path(path).is_symlink():
            target = os.path.realpath(path)
            # A link into nowhere, or into the kernel's files, is no file of anybody.
            todo += [target] if os.path.lexists(target) and not target.startswith(("/proc/", "/sys/", "/dev/")) else []
        elif Path(path).is_dir() and any(path == root or path.startswith(f"{root}/") for root in roots):
            todo += [entry.path for entry in os.scandir(path)]
    for folder in folders - seen:
        if reason := why(folder, groups, above=True):
            found[folder] = reason
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(changeable(sys.argv[2:], groups_of(sys.argv[1]))))
