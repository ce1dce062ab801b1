# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal of a service."""

from __future__ import annotations

import sys

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign

#: Maximum characters of a line.
_MOST = 4096


def say(text: str) -> None:
    """Write a line. A text in it, such as an error of a server, neither begins another one nor changes a terminal."""
    sys.stdout.write(f"{foreign.line(text.strip(), _MOST)}\n")
    sys.stdout.flush()
