# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Patches of vLLM for a GB10: planned, applied to its files, and reverted. Private to this collection.

Entry: plan.present and plan.absent. io_tree writes the files.
"""
