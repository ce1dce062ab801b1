# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of this collection that run on nodes, read on the controller."""

from __future__ import annotations

from pathlib import Path

_CORE = Path(__file__).resolve().parents[1] / "module_utils"


def text(program: str) -> str:
    """Return a program by its path below plugins/module_utils. Raises ValueError for any other file."""
    path = (_CORE / program).resolve()
    if _CORE not in path.parents or not path.is_file():
        raise ValueError(f"{program!r} is not a file of this collection below plugins/module_utils")
    return path.read_text(encoding="utf-8")
