# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of monitoring_server_plan, which documents it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import scrape, server
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import ServerSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils.monitoring import MonitoringDecision, rules, settings_of
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data, typed_plan

_OPTIONS = {
    "port": {"type": "int", "required": True},
    "alerts_port": {"type": "int", "required": True},
    "clients": {"type": "list", "elements": "str", "required": True},
    "days": {"type": "int", "required": True},
    "size": {"type": "int", "required": True},
}


class ActionModule(MonitoringDecision):
    """Plans from the plans of the clusters and the addresses of their nodes."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {files, grafana, units, clusters, notes}, or a failure with every problem. None has the webhook."""
        given = self.arguments(heads={"type": "dict", "required": True}, **_OPTIONS)
        settings = ServerSettings(**{name: given[name] for name in _OPTIONS})
        clusters, jobs, notes = {}, [], []
        own, address = str(variables["inventory_hostname"]), self.address(variables)
        for name, head in given["heads"].items():
            facts = variables["hostvars"][head]
            plan, metrics = typed_plan(facts["gb10_plan"]), settings_of(plain_data(facts["gb10_inputs"]))
            if not metrics.monitoring_enabled:
                continue
            site = self.site(variables, plan, name)
            clusters[site.cluster] = head
            jobs += scrape.jobs(plan, monitoring_plan.ports(plan, metrics.monitoring_port), site)
            notes += scrape.unreachable(address, metrics.monitoring_clients)
            if own in site.addresses:
                notes.append(f"{own} is lost together with its metrics. Fix: name a host outside of the cluster")
        webhook = str(self.variable(variables, "monitoring_server_webhook", ""))
        if problems := server.check(settings, webhook, jobs):
            return {"failed": True, "msg": report(problems)}
        units, texts = server.units(jobs, settings, rules()), server.files(jobs, settings, rules())
        texts |= {f"{paths.UNIT_FOLDER}/{unit['name']}": unit["text"] for unit in units}
        return {
            "changed": False,
            "files": [{"path": path, "content": text} for path, text in texts.items()],
            "grafana": [{"path": path, "content": text} for path, text in server.grafana(settings).items()],
            "units": units,
            "clusters": [{"head": head, "ca": scrape.ca(name)} for name, head in clusters.items()],
            "notes": [f"warning: {note}" for note in notes],
        }
