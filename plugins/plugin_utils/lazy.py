# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Imports of the core on first use, and plain data for it. The plugins on the controller share this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


class Core:
    """A module of the core, imported on the first access to one of its names.

    Ansible loads all filter files again in nearly every task's process, and compiles their imports from source. With
    plain imports, that took a fifth of a run's time.
    """

    def __init__(self, topic: str, folder: str = "module_utils") -> None:
        self._path = f"ansible_collections.gb10.cluster.plugins.{folder}.{topic}"

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._path), name)


def plain_data(data: Any) -> Any:
    """Copy Ansible's lazy and tagged containers to plain ones, which json and dataclasses accept."""
    if isinstance(data, Mapping):
        return {str(key): plain_data(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return [plain_data(value) for value in data]
    return data
