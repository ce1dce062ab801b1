# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that the lint rules and the states of troubleshooting define already, on the facts of a running cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import RUNNING, Check, Found
from ansible_collections.gb10.cluster.plugins.module_utils.health import symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import RuleNode, Situation, View
from ansible_collections.gb10.cluster.plugins.module_utils.verify.environment import DIGEST
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import RECORDED, Cluster, Detect, VerifiedNode

RULES: dict[str, Check[View]] = {rule.id: rule for rule in lint.RULES}


def of_rule(name: str, topic: str, detect: Detect | None = None) -> Check[Cluster]:
    """Return a rule as a check. ``detect`` replaces its condition where the nodes show more than a configuration."""
    rule = RULES[name]
    source = f"{rule.source}; {rule.page}{' with opposing evidence' if rule.disputed else ''}"
    return replace(_running(rule, topic, detect or _by_rule(rule)), source=source, tested=RECORDED)


def of_state(name: str, topic: str, detect: Detect | None = None) -> Check[Cluster]:
    """Return a wrong state of status.yml as a check. ``detect`` replaces its condition."""
    return _running(STATES[name], topic, detect or by_state(name))


def by_state(name: str) -> Detect:
    """Return the condition of a wrong state of status.yml. Nodes without systemd have no state."""

    def found(cluster: Cluster) -> list[Found]:
        nodes = [node for node in cluster.nodes if node.unreachable or "services" in node.facts]
        return [("", each.found) for each in symptoms.wrong_states(nodes) if each.check.id == name]

    return found


def _by_rule(rule: Check[View]) -> Detect:
    return lambda cluster: [("", text) for _path, text in lint.found(rule, situation(cluster))]


def _running(check: Check[Any], topic: str, detect: Detect) -> Check[Cluster]:
    return replace(check, phase=RUNNING, topic=topic, expected=f"not the case: {check.shows}", detect=detect)


def situation(cluster: Cluster) -> Situation:
    """Return the facts that the used rules read. NCCL is that of the first node, because a difference is a finding."""
    nodes = cluster.read
    head = next((node for node in nodes if node.head), None)
    library: dict[str, Any] = next((node.part("nccl_installed") for node in nodes if node.part("nccl_installed")), {})
    return Situation(
        transport="roce" if any(node.network.rdma and node.rails for node in nodes) else "none",
        api_host=_api_host(head) if head else "",
        api_key=not (head and head.part("api").get("open")),
        nccl=library.get("version") or "",
        nccl_gcc=library.get("gcc") or [],
        nodes=[_rule_node(node) for node in nodes],
    )


def _rule_node(node: VerifiedNode) -> RuleNode:
    environments = node.part("environments")
    variables: dict[str, str] = next(iter(environments.values()), {})
    return RuleNode(
        name=node.name,
        head=node.head,
        memory_bytes=node.facts.get("total") or 0,
        capability=node.kind[0] or None,
        driver=node.part("gpu").get("driver_version") or "",
        kernel=node.facts.get("kernel") or "",
        cma_free_bytes=node.facts.get("cma_free_bytes") or 0,
        cma_total_bytes=node.facts.get("cma_total_bytes") or 0,
        environment={name: value for name, value in variables.items() if not value.startswith(DIGEST)},
        fabric={},
        level=(node.part("updates").get("level") or {}).get("stamp", ""),
        next_kernel=node.part("boot").get("kernel") or "",
        kernel_options=tuple(node.part("boot").get("options") or ()),
    )


def _api_host(head: VerifiedNode) -> str:
    """Return an address of the API's socket that other hosts reach, else a loopback address; "" without a socket."""
    port = int(head.part("api").get("url", "").rpartition(":")[2] or 0) if head.part("api") else 0
    hosts: list[str] = [entry["address"] for entry in head.facts.get("listeners") or () if entry["port"] == port]
    return next(
        (host for host in hosts if not access.loopback(host.removeprefix("::ffff:"))), hosts[0] if hosts else ""
    )
