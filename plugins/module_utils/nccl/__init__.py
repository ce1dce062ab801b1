# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL: whether it is built, for which GPUs, which one the ranks use, and how fast it is. Private to this collection.

Entry: choice.choose and build.plan.
"""
