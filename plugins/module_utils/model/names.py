# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two forms of a model's name that need no catalog."""

from __future__ import annotations

import re

_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def is_path(name: object) -> bool:
    """Return whether the name is an absolute path."""
    return isinstance(name, str) and name.startswith("/")


def is_hub(name: object) -> bool:
    """Return whether the name has the form OWNER/NAME of Hugging Face Hub."""
    return isinstance(name, str) and _HUB.fullmatch(name) is not None
