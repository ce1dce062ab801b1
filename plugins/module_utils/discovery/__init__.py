# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Derive an inventory from the QSFP cables. Private to this collection.

Entry: plan.discover. answer validates the hosts' reports, cabling derives the topology, inventory renders its files.
"""
