# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of the served model with vLLM's own client, compared with earlier ones. Private to this collection.

Entry: plan.runs and report.document.
"""
