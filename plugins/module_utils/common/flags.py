# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of vLLM's flags."""

from __future__ import annotations

import re


def inverse(flag: str) -> str:
    """Return --disable-x of --enable-x and the reverse, "" of another flag."""
    match = re.match(r"--(en|dis)able-", flag)
    return f"--{'dis' if match[1] == 'en' else 'en'}able-{flag[match.end() :]}" if match else ""
