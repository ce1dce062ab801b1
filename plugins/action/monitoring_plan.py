# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of monitoring_plan, which documents it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import parse
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import scrape
from ansible_collections.gb10.cluster.plugins.plugin_utils.monitoring import MonitoringDecision, rules, settings_of


class ActionModule(MonitoringDecision):
    """Plans from the addresses of all nodes in the inventory."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {files, unit, settings, ca, written, controller, notes}."""
        given = self.arguments(cluster={"type": "str", "default": ""}, golden_result={"type": "path", "required": True})
        plan = self.plan(variables)
        inputs = self.variable(variables, "gb10_inputs")
        settings = settings_of(inputs)
        # The firewall's role checks them too, but can be off or left out by tags.
        if problems := firewall_plan.check_clients(settings.monitoring_clients):
            return {"failed": True, "msg": "\n".join(map(str, problems))}
        site = self.site(variables, plan, given["cluster"], self._golden(given["golden_result"], variables))
        files = monitoring_plan.of_node(plan, settings, site)
        controller = monitoring_plan.of_controller(plan, settings, site, rules()) if plan.node.head else {}
        return {
            "changed": False,
            "files": [
                paths.program_file("metrics"),
                *({"path": path, "content": text} for path, text in files.items()),
            ],
            "unit": monitoring_plan.exporter(settings),
            "settings": [{"path": paths.MONITORING_SETTINGS, "content": files[paths.MONITORING_SETTINGS]}],
            "ca": scrape.ca(site.cluster),
            "written": paths.EXPORTER_UNIT in plan.node.state.units,
            "controller": [{"name": name, "content": text} for name, text in controller.items()],
            "notes": scrape.notes(plan, settings.monitoring_clients) if plan.node.head else [],
        }

    def _golden(self, path: str, variables: dict[str, Any]) -> str:
        """Return the day of the last golden answers, "" without a result."""
        return str(parse.record(self.file(path, variables), parse.GOLDEN).get("date", ""))
