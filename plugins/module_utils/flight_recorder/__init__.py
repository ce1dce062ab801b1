# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The flight recorder: the last seconds of a host that fell silent. Private to this collection.

Entry: io_recorder, which runs on nodes. Other readers start with schema.Sample.
"""
