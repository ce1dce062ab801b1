# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain data and the plan for the core, from the data of templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

T = TypeVar("T")
#: The fact gb10_plan, as a template passes it.
Fact: TypeAlias = Mapping[str, Any]


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


def typed_plan(fact: Fact) -> Plan:
    """Return the plan of the fact gb10_plan. Raises TypeError with the path of a wrong value."""
    # Nearly every task's process imports this file.
    from ansible_collections.gb10.cluster.plugins.module_utils.plan import load  # noqa: PLC0415

    return load.plan(fact)
