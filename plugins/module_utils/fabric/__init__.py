# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fabric: addresses, netplan files and NCCL's variables for QSFP ports, and network changes with rollback.

Private to this collection.

Entry: plan.of_cluster, with the nodes' facts; plan.plan for a resolved topology without them.
"""
