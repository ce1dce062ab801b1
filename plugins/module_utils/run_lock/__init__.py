# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Allow one run at a time on a cluster. Private to this collection.

io_lock holds the lock on the head; plan defines the lock and its owner.
"""
