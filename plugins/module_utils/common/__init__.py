# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Helpers that all packages share. Private to this collection.

Problems, commands, files, systemd units, and size limits for untrusted text. Imports no other package.
"""
