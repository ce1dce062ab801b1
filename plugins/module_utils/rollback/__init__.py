# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record each launch that answered, and roll back to one of them. Private to this collection.

Entries: plan.judge for a failed launch, history.target for a chosen record. io_record stores the records on the nodes.
"""
