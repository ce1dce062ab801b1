# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of an inventory file, each with its line: the parser's errors in words, and what Ansible reads otherwise.

Entries: syntax.explain and checks.check.
"""
