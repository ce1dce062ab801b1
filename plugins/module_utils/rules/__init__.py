# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lint rules for vLLM launch configurations (docs/rules.md). Private to this collection.

Entry: lint.lint. Each other module contains the rules of one topic.
"""
