# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove old environments from a node, except those in use."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Sequence

#: The folder that the role vllm_runtime names after the digest of a lock. Nothing else is removed.
_FOLDER = re.compile(r"/.+/runtime/[0-9a-f]{12}")
_LINK, _COMPLETE = "current", ".complete"


def unused(folders: Sequence[str]) -> list[str]:
    """Return those environments that exist, that no process uses, and that the link next to them does not name."""
    return [
        folder
        for folder in folders
        if _FOLDER.fullmatch(folder)
        and os.path.isdir(folder)
        and not os.path.islink(folder)
        and os.path.realpath(f"{os.path.dirname(folder)}/{_LINK}") != os.path.realpath(folder)
        and not _used(folder)
    ]


def remove(folders: Sequence[str]) -> None:
    """Remove environments. After a killed run, the next installation starts again. Raises OSError."""
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{folder}/{_COMPLETE}")
        shutil.rmtree(folder)


def _used(folder: str) -> bool:
    """Return whether a process was started from the folder. A rank may change its title, its server does not.

    Raises OSError.
    """
    name = f"{folder}/".encode()
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        # The process may have ended.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, "rb") as file:
            if name in file.read():
                return True
    return False
