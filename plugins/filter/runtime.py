# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: stacks and locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.lazy import Core

stacks = Core("runtime.stacks")


def stack_lock(name: str) -> str:
    """Return the name of a stack's lock file in the role gb10, "" without a lock or for an unknown stack."""
    stack = stacks.STACKS.get(str(name))
    return stack.lock if stack else ""


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"stack_lock": stack_lock}
