# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Protection of a host: GPU clock, swappiness, reboots. Private to this collection.

Entry: plan.steps. io_host reads and changes a host.
"""
