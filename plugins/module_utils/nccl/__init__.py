# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL: the build decision, target GPUs, the library that ranks use, and its speed. Private to this collection.

Entry: choice.choose and build.plan.
"""
