# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Golden answers: requests at temperature 0, compared with a record of the same model. Private to this collection.

Entry: table.questions, compare.judge and record.read. io_golden sends the requests.
"""
