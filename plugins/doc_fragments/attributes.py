# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What every module of this collection says of itself."""

    INFO = r"""
options: {}
attributes:
  check_mode:
    support: full
    description: Reads only, so it does the same in check mode.
  diff_mode:
    support: none
    description: Changes nothing.
"""
    CHANGE = r"""
options: {}
attributes:
  check_mode:
    support: full
    description: In check mode says what it would change and changes nothing.
  diff_mode:
    support: full
    description: Returns the difference with C(--diff).
"""
