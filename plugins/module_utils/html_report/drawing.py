# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drawing of a verified cluster: the planner's diagram with speed, MTU and state of each rail."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Finding
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import diagram
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Interface
from ansible_collections.gb10.cluster.plugins.module_utils.verify.checks_fabric import CONNECTX
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import SEVERITIES, Cluster, VerifiedNode

#: Most nodes in the drawing. The tables have all of them.
MOST = 16


def fabric(known: Cluster, counting: Sequence[Finding]) -> diagram.View:
    """Return the drawn fabric. ``counting``: findings that are not waived."""
    return diagram.fabric([_node(node, counting) for node in known.nodes[:MOST]], known.mtu)


def counted(found: Sequence[Finding]) -> str:
    """Return the number of findings by severity in words, "" without one."""
    counts = {each: sum(finding.check.severity == each for finding in found) for each in SEVERITIES}
    return ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count)


def worst(found: Sequence[Finding]) -> str:
    """Return the worst severity, "" without a finding."""
    return min((finding.check.severity for finding in found), key=SEVERITIES.index, default="")


def state(node: VerifiedNode, counting: Sequence[Finding]) -> str:
    """Return the findings of a node in words."""
    own = [finding for finding in counting if finding.place == node.name]
    return counted(own) or ("ok" if node.facts else "not read")


def _node(node: VerifiedNode, counting: Sequence[Finding]) -> diagram.View:
    api = node.part("api")
    model = [api["model"]] if api.get("healthy") and api.get("model") else []
    variables: Mapping[str, str] = next(iter(node.part("environments").values()), {})
    address = variables.get("VLLM_HOST_IP", "")
    rails = [_rail(node, rail, counting) for rail in sorted(node.rails, key=diagram.pcie_function)]
    notes = [*model, state(node, counting)]
    own = [finding for finding in counting if finding.place == node.name]
    return diagram.node(node.name, node.head, notes, address, node.network.carrier(address), rails, worst(own))


def _rail(node: VerifiedNode, rail: str, counting: Sequence[Finding]) -> diagram.View:
    interface = node.network.interfaces.get(rail)
    severity = worst([finding for finding in counting if _names(finding, node, rail)])
    # The planned address draws the cable of a rail that is down.
    addresses = (interface.addresses if interface else ()) or node.rails[rail]
    *notes, found = _found(interface) if interface else ["missing"]
    notes.append(f"{found}, {severity}" if severity else found)
    if interface and interface.driver != CONNECTX and not severity:
        # The checks of RDMA leave it out.
        notes += ["not a ConnectX:", "not checked"]
    return diagram.rail(rail, interface.hca if interface else "", next(iter(addresses), ""), notes, severity)


def _found(interface: Interface) -> list[str]:
    """Return the speed if it is known, the MTU, and whether the interface is up."""
    speed = [f"{interface.speed / 1000:g} Gb/s"] if interface.speed else []
    carrier = "up" if interface.up and interface.carrier else "no carrier" if interface.up else "down"
    return [*speed, f"MTU {interface.mtu}", carrier]


def _names(finding: Finding, node: VerifiedNode, rail: str) -> bool:
    """Return whether a finding names a rail of the node: one of the node itself, or one with "RAIL of NODE"."""
    owner = "" if finding.place == node.name else f" of {re.escape(node.name)}"
    named = re.search(rf"(?<![\w.]){re.escape(rail)}(?![\w.]){owner}", finding.found)
    return finding.place in ("", node.name) and bool(named)
