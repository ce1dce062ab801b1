# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a verification as one HTML page. Private to this collection.

Entry: report.page. The templates of the role verify have the markup and escape all text.
"""
