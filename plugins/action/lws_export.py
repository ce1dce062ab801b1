# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of lws_export, which documents it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import problems
from ansible_collections.gb10.cluster.plugins.module_utils.export import checks, render, report, schema
from ansible_collections.gb10.cluster.plugins.module_utils.export import plan as export_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.plugin_utils import program
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

_OPTIONS: Mapping[str, Any] = {
    "name": {"type": "str", "required": True},
    "namespace": {"type": "str", "default": ""},
    "nodes": {"type": "dict", "default": {}},
    "runtime_class": {"type": "str", "default": ""},
    "rdma_resource": {"type": "str", "default": ""},
    "entrypoint": {"type": "str", "choices": list(schema.ENTRYPOINTS), "default": schema.AUTO},
    "start_seconds": {"type": "int", "required": True},
}


class ActionModule(Decision):
    """Converts the fact gb10_plan on the controller."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {path, folder, text, lines}, or a failure with every problem."""
        arguments = self.arguments(path={"type": "path", "required": True}, **_OPTIONS)
        path = os.path.abspath(arguments.pop("path"))
        planned = self.plan(variables)
        settings = schema.ExportSettings(**arguments)
        if found := checks.problems(planned, settings):
            return {"failed": True, "msg": problems.report(found)}
        text, lines = exported(planned, settings)
        heading = f"{'Would write' if self._task.check_mode else 'Wrote'} {path}:"
        result = {"path": path, "folder": os.path.dirname(path), "text": text, "lines": [heading, *lines]}
        return {"changed": False, **result, "_ansible_verbose_override": True}


def exported(plan: Plan, settings: schema.ExportSettings) -> tuple[str, list[str]]:
    """Return the objects of a plan without problems as YAML, and lines about them for people."""
    programs = {name: program.source(name)["content"] for name in (*schema.PROGRAMS.values(), schema.GUARD_PROGRAM)}
    objects = export_plan.objects(plan, settings, programs)
    return render.documents(objects), report.lines(plan, settings, objects)
