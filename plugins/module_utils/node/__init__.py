# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one node is: GPU, kernel, interfaces, services. Private to this collection.

io_facts reads it; parse turns what tools print into data.
"""
