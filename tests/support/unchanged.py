"""Refuse what changes a machine while a module runs in this process: writes, and programs that do more than read."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events of effects on files and processes. A lock ends with its process. Source: Python, Audit events table.
_EFFECTS = frozenset(
    f"os.{name}"
    for name in (
        *("chmod", "chown", "kill", "killpg", "link", "mkdir", "posix_spawn", "remove", "rename", "removexattr"),
        *("rmdir", "setxattr", "symlink", "system", "truncate", "utime", "exec", "fork"),
    )
)
#: Temporary folders of one run.
_SCRATCH = tuple(f"{tempfile.gettempdir()}/{name}" for name in ("tmp", "ansible-"))
_PROGRAM = "subprocess.Popen"
#: Says of a command whether it only reads.
Reads = Callable[[Sequence[str]], bool]
_active: list[tuple[Reads, list[str]]] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _active:
        return
    reads, found = _active[-1]
    writes = event == "open" and args[0] != os.devnull and isinstance(args[2], int) and bool(args[2] & _WRITE)
    effect = (writes or event in _EFFECTS) and not _place(event, args).startswith(_SCRATCH)
    if effect or (event == _PROGRAM and not reads([os.fsdecode(word) for word in args[1]])):
        found.append(f"{event} {args[1] if event == _PROGRAM else args[0]}")
        raise PermissionError(f"refused in this test: {found[-1]}")


def _place(event: str, args: tuple[Any, ...]) -> str:
    """Return the path of an event. Below an open folder, which is the last argument, it is relative to it."""
    path = Path(os.fsdecode(args[0])) if isinstance(args[0], str | bytes | os.PathLike) else Path()
    below = event != "open" and isinstance(args[-1], int) and args[-1] >= 0 and not path.is_absolute()
    return str(Path(f"/proc/self/fd/{args[-1]}").readlink() / path if below else path)


# It cannot be removed.
sys.addaudithook(_hook)


@contextmanager
def unchanged(reads: Reads) -> Iterator[list[str]]:
    """Refuse each effect meanwhile. Yields those that were tried, also if the code caught the refusal."""
    found: list[str] = []
    # The first import of a module in a fresh checkout would write its bytecode.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    _active.append((reads, found))
    try:
        yield found
    finally:
        _active.pop()
        sys.dont_write_bytecode = before
