# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: show the cluster's status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.lazy import Core, plain_data

status_lines = Core("health.status")


def status_text(nodes: Sequence[Any], wanted: str) -> list[str]:
    """Return the cluster's status as text lines for people; see module_utils/health/status.py for a node's shape."""
    return status_lines.lines(plain_data(nodes), str(wanted))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"status_text": status_text}
