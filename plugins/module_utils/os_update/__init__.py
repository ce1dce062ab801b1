# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Updates of DGX OS: a node's level, pending packages, kernels and updaters; a kernel's first boot. Private to this
collection.

Entry: plan.stage, parse.state. io_state reads a node, io_boot changes its boot loader.
"""
