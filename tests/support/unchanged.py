"""Refuse what changes a machine while a module runs in this process: writes, and programs that do more than read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events of effects on files and processes. Source: Python, Audit events table.
_EFFECTS = frozenset(
    f"os.{name}"
    for name in (
        *("chmod", "chown", "kill", "killpg", "link", "lockf", "mkdir", "posix_spawn", "remove", "rename"),
        *("removexattr", "rmdir", "setxattr", "symlink", "system", "truncate", "utime", "exec", "fork"),
    )
) | {"shutil.rmtree", "shutil.move", "shutil.copyfile", "fcntl.flock"}
_PROGRAM = "subprocess.Popen"
#: Says of a command whether it only reads.
Reads = Callable[[Sequence[str]], bool]
_active: list[tuple[Reads, list[str]]] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _active:
        return
    reads, found = _active[-1]
    writes = event == "open" and args[0] != os.devnull and isinstance(args[2], int) and bool(args[2] & _WRITE)
    if writes or event in _EFFECTS or (event == _PROGRAM and not reads([os.fsdecode(word) for word in args[1]])):
        found.append(f"{event} {args[1] if event == _PROGRAM else args[0]}")
        raise PermissionError(f"refused in this test: {found[-1]}")


# It cannot be removed.
sys.addaudithook(_hook)


@contextmanager
def unchanged(reads: Reads) -> Iterator[list[str]]:
    """Refuse each effect meanwhile. Yields those that were tried, also if the code caught the refusal."""
    found: list[str] = []
    _active.append((reads, found))
    try:
        yield found
    finally:
        _active.pop()
