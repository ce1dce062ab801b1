# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible import constants
from ansible.utils.display import Display

#: It prints the lines itself, because it knows the terminal and the end of the run.
_CALLBACK = "gb10.cluster.brief"
#: Ansible's setting of a color, by the first words of a line.
_COLORS: Mapping[str, str] = {
    r"\s*(problem|error|last error)\b(?!: none| \(waived)": "COLOR_ERROR",
    r"\s*warning\b(?! \(waived)": "COLOR_WARN",
}


def shown(text: str) -> list[str]:
    """Print the lines of a text, and return them for the callback. A module's result is printed as JSON."""
    lines = [printable(line) for line in text.split("\n")] if text else []
    if constants.DEFAULT_STDOUT_CALLBACK != _CALLBACK:
        for line in lines:
            Display().display(f"  {line}".rstrip(), color=color(line))
    return lines


def printable(line: str) -> str:
    """Return the line with the escape sequences of its control characters, which could change the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line.rstrip())


def color(line: str) -> str | None:
    """Return Ansible's color of the line, None for the terminal's own. Ansible uses none without a terminal."""
    found = next((setting for pattern, setting in _COLORS.items() if re.match(pattern, line)), None)
    return str(getattr(constants, found)) if found else None
