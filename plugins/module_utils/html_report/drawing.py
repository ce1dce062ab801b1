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
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.view import clean
from ansible_collections.gb10.cluster.plugins.module_utils.verify.checks_fabric import CONNECTX
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import SEVERITIES, Cluster, VerifiedNode

#: Most nodes in the drawing. The tables have all of them.
MOST = 16
_NAME = 40


def fabric(known: Cluster, found: Sequence[Finding]) -> diagram.Fabric:
    """Return the drawn fabric. Waived findings have no effect on it."""
    counting = [finding for finding in found if not finding.waived]
    return diagram.Fabric(tuple(_node(node, counting) for node in known.nodes[:MOST]), known.mtu)


def counted(found: Sequence[Finding]) -> str:
    """Return the number of findings by severity in words, "" without one."""
    counts = {each: sum(finding.check.severity == each for finding in found) for each in SEVERITIES}
    return ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count)


def worst(found: Sequence[Finding]) -> str:
    """Return the worst severity, "" without a finding."""
    severities = {finding.check.severity for finding in found}
    return next((each for each in SEVERITIES if each in severities), "")


def _node(node: VerifiedNode, found: Sequence[Finding]) -> diagram.DrawnNode:
    own = [finding for finding in found if finding.place == node.name]
    api = node.part("api")
    model = clean(api.get("model") or "", _NAME) if api.get("healthy") else ""
    state = counted(own) or ("ok" if node.facts else "not read")
    lines = ("head" if node.head else "worker", *([model] if model else []), state)
    variables: Mapping[str, str] = next(iter(node.part("environments").values()), {})
    address = clean(variables.get("VLLM_HOST_IP", ""), _NAME)
    carrying = (name for name, each in node.network.interfaces.items() if address in _plain(each.addresses))
    return diagram.DrawnNode(
        clean(node.name, _NAME),
        lines,
        address,
        clean(next(carrying, ""), _NAME),
        tuple(_rail(node, rail, found) for rail in sorted(node.rails, key=diagram.pcie_function)),
        worst(own),
        "no rail found" if node.facts else "not read",
    )


def _plain(addresses: Sequence[str]) -> list[str]:
    return [address.split("/")[0] for address in addresses]


def _rail(node: VerifiedNode, rail: str, found: Sequence[Finding]) -> diagram.DrawnRail:
    interface = node.network.interfaces.get(rail)
    named = re.compile(rf"(?<![\w.]){re.escape(rail)}(?![\w.])")
    own = [finding for finding in found if finding.place in ("", node.name) and _names(finding, node, named)]
    # The planned address draws the cable of a rail that is down.
    addresses = (interface.addresses if interface else ()) or node.rails[rail]
    *notes, state = _state(interface) if interface else ["missing"]
    severity = worst(own)
    notes.append(f"{state}, {severity}" if severity else state)
    if interface and interface.driver != CONNECTX and not severity:
        # The checks of RDMA leave it out.
        notes += ["not a ConnectX:", "not checked"]
    name, hca = clean(rail, _NAME), clean(interface.hca if interface else "", _NAME)
    return diagram.DrawnRail(name, hca, addresses[0] if addresses else "", tuple(notes), severity)


def _state(interface: Interface) -> list[str]:
    """Return the speed if it is known, the MTU, and whether the interface is up."""
    speed = [f"{interface.speed / 1000:g} Gb/s"] if interface.speed else []
    state = "up" if interface.up and interface.carrier else "no carrier" if interface.up else "down"
    return [*speed, f"MTU {interface.mtu}", state]


def _names(finding: Finding, node: VerifiedNode, named: re.Pattern[str]) -> bool:
    """Return whether a finding names a rail of the node: one of the node itself, or one with "RAIL of NODE"."""
    if finding.place == node.name:
        return bool(named.search(finding.found))
    return any(finding.found[match.end() :].startswith(f" of {node.name}") for match in named.finditer(finding.found))
