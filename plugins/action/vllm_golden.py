# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of vllm_golden, which documents it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.golden import checks, record, report, schema
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


class ActionModule(Decision):
    """Compares a model's answers with its record, which is on the controller."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {outcome, lines, end, problem, files}, or a failure: invalid inputs, or no answers at all."""
        arguments = self.arguments(**schema.ARGUMENTS, timeout={"type": "int", "default": 300})
        # The fact can be of a launch record, which has a part of a plan.
        server = record.served(plain_data(self._templar.template(variables["gb10_plan"])))
        path, renew, bounds = record.file(server, arguments["directory"]), arguments["renew"], arguments["bounds"]
        content = Files(self._loader, self._templar, variables).text(path)
        # A new record has today's prompts, and may replace an invalid one.
        problem, prompts = record.inputs(None if renew else content, path, server)
        if bounds is None:
            return {"failed": True, "msg": problem} if problem else {"changed": False}
        collected = self.module(
            {
                "directory": arguments["directory"],
                "url": server.url,
                "server_name": server.server_name,
                "model": server.name,
                "root": server.root,
                "tools": checks.tools(server),
                "prompts": prompts,
                "timeout": arguments["timeout"],
                "key_file": paths.API_KEY[0],
            },
            variables,
        )
        if "run" not in collected:
            return collected
        today = datetime.now(UTC).strftime("%Y-%m-%d")
        found = report.result(
            plain_data(collected["run"]), content, schema.Bounds(**bounds), server.identity, today, path, renew
        )
        written = {path: found["record"], arguments["result_file"]: found["result"]}
        return {
            "changed": False,
            "outcome": next(iter(found["lines"]), ""),
            "lines": found["lines"],
            "end": found["end"],
            "problem": found["problem"],
            "files": [{"path": name, "content": text} for name, text in written.items() if name and text],
            # A record is longer than all other output of a run with -v.
            "_ansible_verbose_override": True,
        }
