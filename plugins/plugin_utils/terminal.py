# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for a terminal."""

from __future__ import annotations


def printable(line: str) -> str:
    """Return the line with the escape sequences of its control characters, which could change the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line.rstrip())
