# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders and files of this collection on a node."""

from __future__ import annotations

#: Per-node overrides: one file per role, named after the role.
FOLDER = "/etc/gb10/additions"
