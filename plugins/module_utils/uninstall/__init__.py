# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove the collection from a node. Private to this collection.

table lists the paths that roles create; plan decides about each; io_node reads and removes them.
"""
