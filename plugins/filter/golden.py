# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: golden answers and their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data


def golden_path(plan: Fact, directory: str) -> str:
    """Return the path of the planned model's record on the controller."""
    from ansible_collections.gb10.cluster.plugins.module_utils.golden import record

    return record.file(record.served(plain_data(plan)), str(directory))


def golden_record_info(content: str | None, path: str, plan: Fact) -> dict[str, str]:
    """Return {problem, prompts}: the problems of a record and of the plan as text, and the record's prompts as JSON.

    ``content``: null for no record.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, report
    from ansible_collections.gb10.cluster.plugins.module_utils.golden import checks, record

    server = record.served(plain_data(plan))
    found = checks.arguments(server)
    prompts = ""
    try:
        if content is not None:
            prompts = record.prompts(record.read(str(content), str(path), server.identity))
    except ProblemsError as error:
        found = [*error.problems, *found]
    return {"problem": report(found) if found else "", "prompts": prompts}


def golden_verdict(
    run: Mapping[str, Any],
    content: str | None,
    path: str,
    plan: Fact,
    bounds: Mapping[str, Any],
    date: str,
    renew: bool = False,
) -> dict[str, Any]:
    """Return {lines, problem, record, result} of a run; see module_utils/golden/report.py.

    ``content``: null for no record.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.golden import record, report, schema

    limits: dict[str, Any] = {name: bool(value) if name == "strict" else float(value) for name, value in bounds.items()}
    return report.result(
        plain_data(run),
        None if content is None else str(content),
        schema.Bounds(**limits),
        record.served(plain_data(plan)).identity,
        str(date),
        str(path),
        bool(renew),
    )


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "golden_path": golden_path,
            "golden_record_info": golden_record_info,
            "golden_verdict": golden_verdict,
        }
