# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The attributes of this collection's modules."""

    INFO = r"""
options: {}
attributes:
  check_mode:
    support: full
    description: Read-only, so check mode makes no difference.
  diff_mode:
    support: none
    description: Changes nothing.
"""
    CHANGE = r"""
options: {}
attributes:
  check_mode:
    support: full
    description: In check mode, reports the changes without making them.
  diff_mode:
    support: full
    description: Returns the difference with C(--diff).
"""
