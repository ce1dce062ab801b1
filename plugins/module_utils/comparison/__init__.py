# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of a node that site.yml compares with the plan in one connection. Private to this collection.

Entry: of_plan.options and io_parts.PARTS.
"""
