# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a model answers, what its log holds, and how the cluster is doing. Private to this collection.

Entry: smoke.questions and status.lines.
"""
