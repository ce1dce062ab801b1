# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Combine all inputs into one plan. Private to this collection.

Entry: parse.parse, then plan.plan. checks and node_checks return every problem of the inputs and of the nodes; model
chooses the model; report formats the plan as text.
"""
