# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: reports from real hardware."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def field_report(
    plan: Fact,
    nodes: Sequence[Any],
    hosts: Mapping[str, str],
    records: Mapping[str, str],
    date: str,
    site: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the report without names, addresses and keys; see module_utils/field_report/report.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.field_report import report

    texts = report.Records(**{name: str(text) for name, text in records.items()})
    # A node that was lost has no name.
    named = [{**plain_data(node), "name": str(name)} for name, node in zip(hosts, nodes, strict=True)]
    return report.document(
        typed_plan(plan) if plan else None, named, plain_data(hosts), texts, str(date), report.Site(**plain_data(site))
    )


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"field_report": field_report}
