# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scrape configuration of a Prometheus, for one or several clusters."""

from __future__ import annotations

import ipaddress
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import Site
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

#: The jobs, which rules and dashboard name.
NODE, VLLM, RAY = "gb10-node", "gb10-vllm", "gb10-ray"


def ca(cluster: str) -> str:
    """Return the name of the CA's file of a cluster, next to the configuration."""
    return f"{cluster}-ca.crt"


def jobs(plan: Plan, ports: Sequence[int], site: Site) -> list[dict[str, Any]]:
    """Return a cluster's jobs. ``ports``: of the node exporter, and of Ray's metrics if Ray is used.

    Without the API's key: its guard answers /metrics without one, so Prometheus need not have it.
    Their names have the cluster's: a configuration for several clusters must not repeat one.
    """
    found = [
        _job(job, site, {name: f"{_host(address)}:{port}" for name, address in site.addresses.items()})
        for job, port in zip((NODE, RAY), ports, strict=False)
    ]
    if not access.loopback(plan.api_host):
        url = urllib.parse.urlsplit(plan.api.endpoint)
        tls = {"tls_config": {"ca_file": ca(site.cluster)}} if plan.api_tls else {}
        found.append({**_job(VLLM, site, {plan.head.name: url.netloc}), "scheme": url.scheme, **tls})
    return found


def text(given: Sequence[Mapping[str, Any]], alertmanager: str = "") -> str:
    """Return prometheus.yml with jobs. ``alertmanager``: its address and port, "" without one."""
    # YAML contains JSON, and the standard library has no YAML.
    lines = [f"  - {json.dumps(job)}" for job in given]
    head = ["# Ansible managed", "global: {scrape_interval: 15s, evaluation_interval: 15s}", "rule_files: [rules.yml]"]
    if alertmanager:
        head.append(f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}")
    return "\n".join([*head, "scrape_configs:", *lines, ""])


def notes(plan: Plan, clients: Sequence[str]) -> list[str]:
    """Return what Prometheus cannot read with these settings, with the fix."""
    found = []
    if not clients:
        found.append("monitoring_clients is empty, so no other host reaches the metrics. Fix: set Prometheus's address")
    if access.loopback(plan.api_host):
        found.append(f"the API listens on {plan.api_host}, so vLLM's metrics are missing. Fix: change gb10_api_host")
    elif plan.api_clients and (missing := [each for each in clients if not _inside(each, plan.api_clients)]):
        found.append(f"{', '.join(missing)} cannot read vLLM's metrics. Fix: add it to gb10_api_clients")
    return [f"warning: {note}" for note in found]


def unreachable(address: str, clients: Sequence[str]) -> list[str]:
    """Return a note if Prometheus's own address is not a client of the nodes. A name has no note: it may be one."""
    known = not access.is_address(address) or _inside(address, clients)
    return [] if known else [f"the nodes refuse {address}. Fix: add it to monitoring_clients"]


def _inside(client: str, networks: Sequence[str]) -> bool:
    """Return whether one of the networks has the whole client, False if that is none: the firewall refuses it."""
    try:
        found = ipaddress.ip_network(client)
    except ValueError:
        return False
    known = map(ipaddress.ip_network, networks)
    return any(found.version == each.version and found.subnet_of(each) for each in known)  # type: ignore[arg-type]


def _job(name: str, site: Site, targets: Mapping[str, str]) -> dict[str, Any]:
    """Return a job of targets {node: address and port}."""
    labels = {"job": name, "cluster": site.cluster}
    listed = [{"targets": [address], "labels": {**labels, "node": node}} for node, address in targets.items()]
    return {"job_name": f"{name}-{site.cluster}", "static_configs": listed}


def _host(address: str) -> str:
    """Return an address for a port behind it."""
    return f"[{address}]" if ":" in address else address
