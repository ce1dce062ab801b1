# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports from real hardware without names, addresses and keys. Private to this collection.

Entry: report.document. redact removes identifying text, and finds any that is left.
"""
