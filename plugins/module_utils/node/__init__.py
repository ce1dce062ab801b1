# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of one node: GPU, kernel, interfaces, services. Private to this collection.

io_facts reads them; parse converts the output of tools to data.
"""
