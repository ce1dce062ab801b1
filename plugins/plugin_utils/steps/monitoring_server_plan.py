# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan Prometheus and Alertmanager for the clusters of an inventory.

Returns the configuration and units for the clusters with ``monitoring_enabled``, from their facts ``gb10_plan`` and
``gb10_inputs``. Fails with every problem.
Reads ``monitoring_server_webhook`` only to check it. No result contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import scrape, server
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import ServerSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.monitoring import rules, settings_of, site_of
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data, typed_plan


@dataclass(frozen=True, kw_only=True)
class Inputs(ServerSettings):
    """The inputs.

    ``heads``: The clusters, as a free-form mapping of a name to the head.
    ``port``: The port of Prometheus.
    ``alerts_port``: The port of Alertmanager.
    ``clients``: Addresses and networks that reach Prometheus; empty for this host alone.
    ``days``: How long metrics are kept.
    ``size``: Maximum size of the stored metrics in GiB.
    """

    heads: Mapping[str, Any]


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {files, grafana, units, clusters, notes}, or a failure with every problem. None has the webhook."""
    clusters, jobs, notes = {}, [], []
    own, address = str(variables["inventory_hostname"]), step.address(variables)
    for name, head in given.heads.items():
        facts = variables["hostvars"][head]
        plan, metrics = typed_plan(facts["gb10_plan"]), settings_of(plain_data(facts["gb10_inputs"]))
        if not metrics.monitoring_enabled:
            continue
        site = site_of(step, variables, plan, name)
        clusters[site.cluster] = head
        jobs += scrape.jobs(plan, monitoring_plan.ports(plan, metrics.monitoring_port), site)
        notes += scrape.unreachable(address, metrics.monitoring_clients)
        if own in site.addresses:
            notes.append(f"{own} is lost together with its metrics. Fix: name a host outside of the cluster")
    webhook = str(step.variable(variables, "monitoring_server_webhook", ""))
    if problems := server.check(given, webhook, jobs):
        return {"failed": True, "msg": report(problems)}
    alerts = rules()
    units, texts = server.units(jobs, given, alerts), server.files(jobs, given, alerts)
    texts |= {f"{paths.UNIT_FOLDER}/{unit['name']}": unit["text"] for unit in units}
    return {
        "changed": False,
        "files": [{"path": path, "content": text} for path, text in texts.items()],
        "grafana": [{"path": path, "content": text} for path, text in server.grafana(given).items()],
        "units": units,
        "clusters": [{"head": head, "ca": scrape.ca(name)} for name, head in clusters.items()],
        "notes": [f"warning: {note}" for note in notes],
    }
