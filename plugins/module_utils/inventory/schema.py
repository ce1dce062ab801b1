# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of an inventory file: YAML's values with their positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem


@dataclass(frozen=True)
class Place:
    """A position: line and column from 1, as editors count."""

    line: int
    column: int


@dataclass(frozen=True)
class Text:
    """A plain value, "" for none."""

    place: Place
    value: str


@dataclass(frozen=True)
class Items:
    """A list. Only its place is read."""

    place: Place


@dataclass(frozen=True)
class Keys:
    """A mapping: its keys in the file's order, also repeated ones. A key that is not text has the value ""."""

    place: Place
    entries: tuple[tuple[Text, Value], ...]

    @cached_property
    def named(self) -> Mapping[str, Value]:
        """Return the values by key; of a repeated key the last one, as YAML has it."""
        return {key.value: value for key, value in self.entries}


Value: TypeAlias = "Text | Items | Keys"


@dataclass(frozen=True)
class Fault:
    """One fault of the file."""

    place: Place
    found: str
    expected: str
    fix: str

    def problem(self, path: str) -> Problem:
        """Return the fault as a problem of the file ``path``, such as inventories/mine/hosts.yml:7:5."""
        return Problem(f"{path}:{self.place.line}:{self.place.column}", self.found, self.expected, self.fix)
