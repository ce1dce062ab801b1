# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page's data: verdict, findings, drawing, tables, the model, and its origin. The role's template has the HTML.

The page loads nothing and runs no program. Its policy allows only its own style, by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Finding
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import diagram
from ansible_collections.gb10.cluster.plugins.module_utils.health import status
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import drawing, model, tables
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.style_data import STYLE
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.view import ENTRIES, SYMBOLS, View, clean
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verify_report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, SEVERITIES, Cluster

#: The documentation on the web: `repository` of galaxy.yml.
REPOSITORY = "https://github.com/gb10-cluster/gb10.cluster"
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Inputs:
    """The inputs next to the nodes. ``groups``: the verified groups of checks. ``waivers``: reasons by ID.

    ``cluster``: its name. ``quick``: whether slow checks were left out. ``golden``: the file of the last golden result,
    None without one. ``benchmarks``: documents by path, the newest one first. ``matrix``: the record of several models,
    None without one.
    """

    groups: Sequence[str]
    waivers: Mapping[str, str]
    cluster: str
    quick: bool
    golden: str | None
    benchmarks: Mapping[str, str]
    matrix: str | None


def page(nodes: Sequence[Mapping[str, Any]], given: Inputs) -> View:
    """Return the variables of the template. ``nodes``: as for verify.report.report."""
    known = verify_report.cluster(nodes)
    found = verify_report.findings(known, given.groups, given.waivers)
    checks = {check.id for check in verify_report.CHECKS if check.topic in given.groups}
    rows = [row for row in differences.rows(known) if row.check in checks]
    counting = [finding for finding in found if not finding.waived]
    drawn = diagram.svg(drawing.fabric(known, found), "cluster", clean(f"Nodes and rails of {given.cluster}"))
    return {
        # Finished markup, which is not escaped.
        "markup": {"style": STYLE, "policy": POLICY, "drawing": drawn},
        "symbols": SYMBOLS,
        "repository": REPOSITORY,
        "most": ENTRIES,
        "cluster": given.cluster,
        "counted": drawing.counted(counting),
        "time": _time(max((node.finished for node in known.nodes), default=0.0)),
        "verdict": _verdict(counting, len(checks), len(found) - len(counting), given.golden),
        "scope": _scope(known, given),
        "findings": _findings(found),
        "api": _api(known),
        "nodes": tables.nodes(known, found),
        "drawn": (drawing.MOST, len(known.nodes)),
        "differences": tables.node_differences(rows, known, found) if rows else None,
        "comparable": len(known.read) > 1,
        "gpu_code": tables.gpu_code(known),
        "probes": tables.probes(known),
        "logs": tables.logs(known, found, given.groups),
        "golden": model.golden(given.golden),
        "benchmarks": model.benchmarks(given.benchmarks),
        "matrix": model.matrix(given.matrix),
        "unread": {node.name: node.unreachable for node in known.nodes[:ENTRIES] if not node.facts},
        "versions": tables.versions(known),
        "state": tables.state(known),
        "origin": _origin(known, given, len(checks)),
    }


def _verdict(counting: Sequence[Finding], checks: int, waived: int, golden: str | None) -> View:
    """Return the worst severity of the checks and of the last golden result, "" for none, and the result in words."""
    worst = drawing.worst(counting)
    words = f"Worst severity: {worst} ({drawing.counted(counting)})" if worst else f"All {checks} checks passed"
    severity, answers = model.golden_verdict(golden)
    parts = (words, f"{waived} waived" if waived else "", answers)
    worst = next((each for each in SEVERITIES if each in (worst, severity)), "")
    return {"severity": worst, "words": ", ".join(filter(None, parts)), "golden": answers}


def _scope(known: Cluster, given: Inputs) -> str:
    groups = "all groups of checks" if set(GROUPS) <= set(given.groups) else f"only {', '.join(given.groups)}"
    quick = ", without slow checks" if given.quick else ""
    return f"{len(known.read)} of {len(known.nodes)} nodes read, {groups}{quick}"


def _findings(found: Sequence[Finding]) -> list[View]:
    """Return the errors, the warnings, then the waived findings. All findings of a check are one article."""
    groups = {
        f"{name.capitalize()}s": [each for each in found if each.check.severity == name and not each.waived]
        for name in SEVERITIES
    }
    groups["Waived"] = [finding for finding in found if finding.waived]
    return [
        {
            "title": f"{title} ({len(group)})",
            "articles": [list(each) for _check, each in itertools.groupby(group, key=lambda finding: finding.check)],
        }
        for title, group in groups.items()
        if group
    ]


def _api(known: Cluster) -> View | None:
    """Return the served model, None without a head that was read."""
    api: Mapping[str, Any] = next((node.part("api") for node in known.read if node.head and node.part("api")), {})
    if not api:
        return None
    answer = "healthy, but it does not answer" if api.get("healthy") else "not ready"
    return {
        "model": api.get("model") or "no model",
        "endpoint": next((node.endpoint for node in known.read if node.head), "") or api["url"],
        "answer": f"answers in {api['answered_after'] * 1000:.0f} ms" if api.get("answers") else answer,
        "load": status.activity(api) if api.get("healthy") else "",
        "watchdog": status.watchdog({node.name: node.part("watchdog") for node in known.read if node.part("watchdog")}),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _origin(known: Cluster, given: Inputs, checks: int) -> View:
    left = [group for group in GROUPS if group not in given.groups]
    quick = "packets over each rail, and digests of vLLM's files and of NCCL (verify_quick)" if given.quick else ""
    return {
        "Start": _time(min((node.started for node in known.nodes), default=0.0)),
        "Checks": f"{checks}, of the groups {', '.join(given.groups)}",
        "Left out": "; ".join(filter(None, (", ".join(left), quick))) or "nothing",
        "Golden answers": "the last result in the folder .gb10 of the inventory, not part of this run",
        "Benchmarks": "the last ones in that folder, not part of this run",
    }
