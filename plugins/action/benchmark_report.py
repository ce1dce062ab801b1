# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of benchmark_report, which documents it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network, report
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The newest earlier documents of a model that are compared.
_MOST = 20


class ActionModule(Decision):
    """Compares on the controller, which has the earlier documents."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {document, file, path, lines, best, findings}."""
        arguments = self.arguments(
            directory={"type": "path", "required": True},
            bandwidth_file={"type": "path", "required": True},
            mode={"type": "str", "required": True},
            date={"type": "str", "required": True},
            seed={"type": "int", "required": True},
            tolerance={"type": "float", "required": True},
            status={"type": "str", "required": True},
            rtts={"type": "list", "elements": "dict", "default": []},
            measured={"type": "list", "elements": "dict", "required": True},
        )
        plan, files = self.plan(variables), Files(self._loader, self._templar, variables)
        states = self.of_nodes(variables, [node.name for node in plan.nodes], arguments["status"], {})
        facts = {
            **{name: arguments[name] for name in ("date", "mode", "seed")},
            "drivers": {node: state.get("driver", "") for node, state in states.items()},
            "network": network.figures(arguments["rtts"], files.text(arguments["bandwidth_file"]) or ""),
        }
        runs = [{**each["item"], **{key: each[key] for key in report.MEASURED}} for each in arguments["measured"]]
        found, directory = report.document(plan, facts, runs), arguments["directory"]
        paths = files.named(directory, f"{report.stem(plan.served_model_name)}-*.json")[-_MOST:]
        old, notes = report.earlier(files.texts(paths), found)
        findings = list(map(str, report.findings(found, old, arguments["tolerance"])))
        name = report.file_name(found)
        return {
            "changed": False,
            "document": {**found, "findings": findings},
            "file": name,
            "path": f"{directory}/{name}",
            "lines": [*report.lines(found, old), *notes],
            "best": report.best(found),
            "findings": findings,
            # The document is longer than all other output of a run with -v.
            "_ansible_verbose_override": True,
        }
