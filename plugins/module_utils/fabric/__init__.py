# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QSFP ports to addresses, netplan files and the environment of NCCL; the change of the network with its rollback. Private to this collection.

Entry: plan.plan.
"""
