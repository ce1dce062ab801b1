# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a verification: findings, differences, text, JSON lines, and the worst severity."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Check, Finding
from ansible_collections.gb10.cluster.plugins.module_utils.verify import (
    checks_fabric,
    checks_hardware,
    checks_runtime,
    checks_serving,
    differences,
    evidence,
    kernels,
)
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import (
    GROUPS,
    SEVERITIES,
    Cluster,
    VerifiedNode,
)

CHECKS: tuple[Check[Cluster], ...] = (
    checks_hardware.CHECKS
    + checks_fabric.CHECKS
    + checks_runtime.CHECKS
    + checks_serving.CHECKS
    + evidence.CHECKS
    + kernels.CHECKS
)
#: Maximum characters of a value in the table.
_SHOWN = 40
_NEVER = "never"


def cluster(read: Mapping[str, Any], probed: Mapping[str, Any], now: float) -> Cluster:
    """Return the nodes from the results of the actions cluster_verify_info and cluster_verify_probe.

    Either can be {}: a node whose connection broke between two tasks, or that --limit left out.
    """
    lost = {
        "head": False,
        "unreachable": "it was not read, because its connection broke or the run left it out",
        "facts": {},
        "started": now,
        "finished": now,
    }
    nodes = []
    for name, result in read.items():
        probe = {part: each for part, each in probed.get(name, {}).items() if part in ("paths", "probe")}
        nodes.append(VerifiedNode(**{**lost, **(result.get("node") or {}), **probe, "name": name}))
    return Cluster(nodes)


def problem(worst: str, fail_on: str) -> str:
    """Return why a verification with findings fails."""
    return (
        f"The worst finding is of severity {worst}. Expected: no finding of severity {fail_on} or worse. "
        "Fix: correct the listed findings, or set verify_fail_on."
    )


def rails(known: Cluster, name: str) -> dict[str, Any]:
    """Return fabric_probe's options {rails, mtu} for a node: its rails with the peers in the same subnet."""
    node = next((each for each in known.read if each.name == name), None)
    found = []
    for rail, addresses in node.rails.items() if node else ():
        peers = known.peers(node, rail) if node else {}
        if peers and addresses:
            by_peer = {
                "peers": {peer: address for peer, (address, _mac) in peers.items()},
                "macs": {peer: mac for peer, (_address, mac) in peers.items()},
            }
            found.append({"interface": rail, "address": addresses[0], **by_peer})
    return {"rails": found, "mtu": known.mtu}


def findings(known: Cluster, groups: Sequence[str], waivers: Mapping[str, str]) -> list[Finding]:
    """Return the findings of these groups, errors first, then by group and ID. ``waivers`` are reasons by ID."""
    found = [
        Finding(check, node, text, (waivers.get(check.id) or "").strip())
        for check in CHECKS
        if check.topic in groups
        for node, text in check.detect(known)
    ]
    order = [check.id for check in CHECKS]
    return sorted(
        found,
        key=lambda each: (
            SEVERITIES.index(each.check.severity),
            GROUPS.index(each.check.topic),
            order.index(each.check.id),
            each.place,
        ),
    )


def report(known: Cluster, groups: Sequence[str], fail_on: str, waivers: Mapping[str, str]) -> dict[str, Any]:
    """Return {lines, json_lines, worst, failed}: text, a JSON document per line, and the worst severity or "".

    ``failed`` is whether it reaches ``fail_on`` (error, warning or never). Findings with a reason in ``waivers`` are
    shown, but do not count.
    """
    found = findings(known, groups, waivers)
    ids = {check.id for check in CHECKS if check.topic in groups}
    rows = [row for row in differences.rows(known) if row.check in ids]
    summary = _summary(known, found, len(ids), groups)
    worst = summary["worst"]
    with_kernels = known if "kernel-missing" in ids else Cluster([])
    documents = [summary, *map(facts, found), *(row.facts() for row in rows)]
    failed = fail_on != _NEVER and worst != "" and SEVERITIES.index(worst) <= SEVERITIES.index(fail_on)
    return {
        "lines": [
            _title(summary),
            *_lines(found),
            *_table(rows, [node.name for node in known.read]),
            *(differences.pending_lines(known) if "os-level-differs" in ids else ()),
            *kernels.lines(with_kernels),
        ],
        "json_lines": [
            json.dumps(document, sort_keys=True) for document in (*documents, *kernels.documents(with_kernels))
        ],
        "worst": worst,
        "failed": failed,
    }


def facts(finding: Finding) -> dict[str, str]:
    """Return a finding as plain data, as in a JSON line."""
    check = finding.check
    return {
        "kind": "finding",
        "id": check.id,
        "group": check.topic,
        "severity": check.severity,
        "node": finding.place,
        "found": finding.found,
        "expected": check.expected,
        "why": check.why,
        "fix": check.fix,
        "page": check.page,
        "waived": finding.waived,
    }


def _summary(known: Cluster, found: Sequence[Finding], checks: int, groups: Sequence[str]) -> dict[str, Any]:
    counting = [each.check.severity for each in found if not each.waived]
    counts = {severity: counting.count(severity) for severity in SEVERITIES}
    waived = {"waived": len(found) - len(counting)}
    worst = next((severity for severity in SEVERITIES if counts[severity]), "")
    nodes = {"nodes": len(known.nodes), "read": len(known.read)}
    return {"kind": "summary", **nodes, "checks": checks, "groups": list(groups), **counts, **waived, "worst": worst}


def _title(summary: Mapping[str, Any]) -> str:
    nodes = f"{summary['read']} of {summary['nodes']} nodes"
    result = f"{summary['error']} errors, {summary['warning']} warnings" if summary["worst"] else "no finding"
    waived = f", {summary['waived']} waived" if summary["waived"] else ""
    return f"verified {nodes} with {summary['checks']} checks ({', '.join(summary['groups'])}): {result}{waived}"


def _lines(found: Sequence[Finding]) -> Iterator[str]:
    """Yield a line for each finding, and after those of a check the expected state, the reason and the fix."""
    for check, group in itertools.groupby(found, key=lambda finding: finding.check):
        for finding in group:
            place = f" {finding.place}" if finding.place else ""
            waived = f" (waived: {finding.waived})" if finding.waived else ""
            yield f"{check.severity}{waived} {check.id}{place}: {finding.found}"
        yield f"  expected: {check.expected}; {check.why}"
        yield f"  fix: {check.fix}; {check.page}"


def _table(rows: Sequence[differences.Row], names: Sequence[str]) -> list[str]:
    """Return the differences as a table, one attribute per line and one node per column."""
    if not rows:
        return []
    cells = [
        ["differences", *names],
        *([row.attribute, *(_short(row.values.get(name, "-")) for name in names)] for row in rows),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names) + 1)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
