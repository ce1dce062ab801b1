# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restrict access to the ports of a node. Private to this collection.

Entry: of_plan.options and plan.ruleset. io_nftables loads the rules and rolls them back.
"""
