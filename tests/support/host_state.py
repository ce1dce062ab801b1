"""Print the files and units of a host as JSON, to compare two states of it: host_state.py FOLDER ...

It runs on the host as root and needs only Python. Files are a map of path -> type, mode, owner, and SHA-256 or target.
Units are a map of name -> state of the unit file, and of name -> active state.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

#: Paths that change on a host that nobody uses, or that belong to other programs, with the reason.
IGNORED: Mapping[str, str] = {
    r"/var/log(/.*)?": "logs",
    r"/var/(cache|tmp)(/.*)?": "caches and temporary files, which a host may lose at any time",
    r"/var/lib/(apt|dpkg)(/.*)?": (
        "Ansible's module apt reads these lists and renews them; no package is installed here"
    ),
    r"/var/lib/systemd/(random-seed|timers|timesync|credential.*)(/.*)?": "systemd renews them",
    r"/var/lib/sudo(/.*)?": "sudo's time stamps",
    r"/var/lib/(docker|containerd|NetworkManager)(/.*)?": "containers, and leases of NetworkManager",
    r"/etc/((passwd|group|shadow|gshadow|subuid|subgid)-|\.pwd\.lock)": "backups and the lock of the user database",
    r"(/root|/home/[^/]+)/(\.ansible|\.cache)(/.*)?": "Ansible's and pip's own files",
    r"/etc/ld\.so\.cache": "the linker's cache, which installed packages renew",
    r".*/__pycache__(/.*)?": "bytecode that Python compiles when root imports a module",
}
#: Units of logins, devices and requests, which come and go.
PASSING = re.compile(
    r"session-.*|run-docker-netns-.*|tmp-crun\..*|user@.*|user-.*|run-user-.*|.*\.device|run-u\d+.*|proc-sys-fs-binfmt_misc\..*|systemd-(hostnamed|localed|timedated)\.service"
)
_SKIP = re.compile("|".join(f"(?:{pattern})" for pattern in IGNORED))


def entry(path: str) -> list[str]:
    """Return type and mode, owner, and content of a path: the hash of a file, the target of a link."""
    found = os.lstat(path)
    content = ""
    if stat.S_ISREG(found.st_mode):
        with Path(path).open("rb") as file:
            content = f"{found.st_size} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    elif stat.S_ISLNK(found.st_mode):
        content = str(Path(path).readlink())
    return [f"{found.st_mode:o}", f"{found.st_uid}:{found.st_gid}", content]


def files(folders: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield every path below the folders, except IGNORED. A link is not followed."""
    todo = [folder for folder in folders if os.path.lexists(folder)]
    while todo:
        path = todo.pop()
        if _SKIP.fullmatch(path):
            continue
        yield path, entry(path)
        if Path(path).is_dir() and not Path(path).is_symlink():
            todo += [found.path for found in os.scandir(path)]


def units(command: str) -> dict[str, str]:
    """Return name -> state by `systemctl list-unit-files` (state) or `list-units` (active)."""
    listed = subprocess.run(
        ["systemctl", command, "--plain", "--no-legend", "--no-pager"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {
        row[0]: row[1] if command == "list-unit-files" else row[2]
        for row in rows
        if len(row) > 2 and not PASSING.fullmatch(row[0])
    }


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Return name -> (before, after) of all entries that differ, None for a missing one."""
    return {
        name: (before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


if __name__ == "__main__":
    state = {"files": dict(files(sys.argv[1:])), "unit files": units("list-unit-files"), "units": units("list-units")}
    sys.stdout.write(json.dumps(state))
