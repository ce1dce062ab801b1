# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain data for the core, from that of templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
def plain_data(data: Mapping[str, T]) -> dict[str, T]: ...


@overload
def plain_data(data: Sequence[T]) -> list[T]: ...


def plain_data(data: Any) -> Any:
    """Copy Ansible's lazy and tagged containers to plain ones, which json and dataclasses accept."""
    if isinstance(data, Mapping):
        return {str(key): plain_data(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return [plain_data(value) for value in data]
    return data
