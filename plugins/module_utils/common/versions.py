# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the release and the CUDA release from a version."""

from __future__ import annotations

import re


def release(version: str | None) -> tuple[int, ...] | None:
    """Return (0, 21, 1) of "0.21.1rc1.dev169+gabc", None if the version is unknown."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    return tuple(int(part or 0) for part in match.groups()) if match else None


def build(version: str | None) -> int | None:
    """Return the CUDA release in a version's local part: 13 of "0.20.2+cu130", None if there is none."""
    match = re.search(r"\+(?:.*\.)?cu(\d\d)\d\b", version or "")
    return int(match[1]) if match else None
