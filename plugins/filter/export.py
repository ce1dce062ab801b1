# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the plan as objects of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def lws_export(plan: Fact, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return {problems, report, text, lines}: the plan as YAML, and lines about it for people."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common import problems as problem_types
    from ansible_collections.gb10.cluster.plugins.module_utils.export import checks, render, report, schema
    from ansible_collections.gb10.cluster.plugins.module_utils.export import plan as exported
    from ansible_collections.gb10.cluster.plugins.plugin_utils import program

    planned, given = typed_plan(plan), schema.Settings(**plain_data(settings))
    problems = checks.problems(planned, given)
    result = {"problems": [str(problem) for problem in problems], "report": "", "text": "", "lines": []}
    if problems:
        return {**result, "report": problem_types.report(problems)}
    programs = {name: program.source(name)["content"] for name in (*schema.PROGRAMS.values(), schema.GUARD_PROGRAM)}
    objects = exported.objects(planned, given, programs)
    return {**result, "text": render.documents(objects), "lines": report.lines(planned, given, objects)}


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"lws_export": lws_export}
