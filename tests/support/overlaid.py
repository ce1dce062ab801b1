"""Hosts of a play that are this machine with folders of their own: modules write below a folder of each host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_FOLDERS = ("etc", "usr/local/lib")
#: An interpreter in a mount namespace of its own. $0 is the folder of the host.
_INTERPRETER = """#!/bin/sh
exec unshare --mount --propagation private sh -ec '
  for each in {folders}; do
    mount -t overlay gb10 -o "lowerdir=/$each,upperdir=$0/$each,workdir=$0/work/$each" "/$each"
  done
  exec {python} "$@"' {folder} "$@"
"""


def interpreter(folder: Path) -> Path:
    """Return a Python interpreter whose /etc and /usr/local/lib are the machine's, with all changes below ``folder``."""
    for each in _FOLDERS:
        (folder / each).mkdir(parents=True, exist_ok=True)
        (folder / "work" / each).mkdir(parents=True, exist_ok=True)
    path = folder / "python"
    text = _INTERPRETER.format(folders=" ".join(_FOLDERS), python=sys.executable, folder=folder)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def permitted(folder: Path) -> bool:
    """Return whether this machine permits such mounts."""
    done = subprocess.run([interpreter(folder), "-c", ""], capture_output=True, check=False)
    return done.returncode == 0
