# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watchdog: detects a hanging engine, collects evidence and restarts all ranks. Private to this collection.

Entry: decide.step and decide.local. io_watch is the program that the role vllm_watchdog installs.
"""
