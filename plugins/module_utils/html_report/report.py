# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page: title and worst severity, findings, drawing, differences, GPU code, log, model, versions, and its origin.

The page loads nothing and runs no program. Its policy allows only its own style, by its digest.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Finding
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import diagram
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import drawing, matrix, model, runtime, sections
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.html import Markup, clean, join, tag, terms
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.style_data import STYLE
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verify_report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, SEVERITIES, Cluster

_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = Markup(f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'")


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


def document(nodes: Sequence[Mapping[str, Any]], given: Inputs) -> str:
    """Return the page. ``nodes``: as for verify.report.report."""
    known = verify_report.cluster(nodes)
    found = verify_report.findings(known, given.groups, given.waivers)
    checks = {check.id for check in verify_report.CHECKS if check.topic in given.groups}
    rows = [row for row in differences.rows(known) if row.check in checks]
    finished = max((node.finished for node in known.nodes), default=0.0)
    counting = [finding for finding in found if not finding.waived]
    words = ", ".join(filter(None, (drawing.counted(counting) or "no finding", model.golden_verdict(given.golden)[1])))
    drawn = diagram.svg(drawing.fabric(known, found), "cluster", clean(f"Nodes and rails of {given.cluster}"))
    content = _content(known, found, given, rows, drawn, len(checks))
    body = [tag("section", tag("h2", title, id=_anchor(title)), each) for title, each in content.items()]
    header = tag(
        "header",
        *_header(
            known, given, _verdict(counting, len(checks), len(found) - len(counting), given.golden), _time(finished)
        ),
        _contents(content),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{given.cluster}: {words}, {_time(finished)}"),
        tag("style", Markup(STYLE)),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, tag("body", header, tag("main", *body)), lang="en") + "\n"


def _content(
    known: Cluster, found: Sequence[Finding], given: Inputs, rows: Sequence[differences.Row], drawn: str, checks: int
) -> dict[str, Markup]:
    """Return the sections by title, without those that have no data."""
    content = {
        "Findings": join(sections.findings(found)),
        "Cluster": join(
            [
                tag("div", Markup(drawn), class_="diagram scroll", role="region", aria_label="Drawing", tabindex=0),
                *sections.overview(known, found),
            ]
        ),
        "Differences between nodes": sections.node_differences(rows, known, found),
        "GPU code": join(runtime.gpu_code(known)),
        "Evidence from the log": join(runtime.logs(known, found, given.groups)),
        "Golden answers": join(model.golden(given.golden)),
        "Benchmarks": join([*model.benchmarks(given.benchmarks), *matrix.matrix(given.matrix)]),
        "Versions and state": join([sections.unread(known), sections.versions(known), sections.state(known)]),
        "How this page was made": _origin(known, given, checks),
    }
    return {title: each for title, each in content.items() if each}


def _verdict(counting: Sequence[Finding], checks: int, waived: int, golden: str | None) -> tuple[str, str]:
    """Return the worst severity of the checks and of the last golden result, "" for none, and the result in words."""
    worst = drawing.worst(counting)
    words = f"Worst severity: {worst} ({drawing.counted(counting)})" if worst else f"All {checks} checks passed"
    severity, answers = model.golden_verdict(golden)
    parts = (words, f"{waived} waived" if waived else "", answers)
    return next((each for each in SEVERITIES if each in (worst, severity)), ""), ", ".join(filter(None, parts))


def _header(known: Cluster, given: Inputs, verdict: tuple[str, str], time: str) -> list[Markup]:
    worst, words = verdict
    read = f"{len(known.read)} of {len(known.nodes)} nodes read"
    groups = "all groups of checks" if set(GROUPS) <= set(given.groups) else f"only {', '.join(given.groups)}"
    quick = ", without slow checks" if given.quick else ""
    return [
        tag("h1", f"Cluster {given.cluster}"),
        tag("p", f"Verified on {time}: {read}, {groups}{quick}", class_="muted"),
        tag(
            "p",
            f"{sections.SYMBOLS[worst]} {words}",
            class_=f"status {worst or 'good'}",
        ),
    ]


def _contents(content: Mapping[str, Markup]) -> Markup:
    entries = (tag("li", tag("a", title, href=f"#{_anchor(title)}")) for title in content)
    return tag("nav", tag("ul", *entries), aria_label="Sections")


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _origin(known: Cluster, given: Inputs, checks: int) -> Markup:
    left = [group for group in GROUPS if group not in given.groups]
    quick = "packets over each rail, and digests of vLLM's files and of NCCL (verify_quick)" if given.quick else ""
    started = min((node.started for node in known.nodes), default=0.0)
    return join(
        [
            tag(
                "p",
                tag("code", "playbooks/verify.yml"),
                " of the Ansible collection gb10.cluster wrote it. It changed nothing.",
            ),
            terms(
                [
                    ("Start", _time(started)),
                    ("Checks", f"{checks}, of the groups {', '.join(given.groups)}"),
                    ("Left out", "; ".join(filter(None, (", ".join(left), quick))) or "nothing"),
                    ("Golden answers", "the last result in the folder .gb10 of the inventory, not part of this run"),
                    ("Benchmarks", "the last ones in that folder, not part of this run"),
                ]
            ),
            tag("p", "The page loads nothing and contains no program. It has names and addresses of the nodes."),
            tag(
                "p",
                "For an issue, use ",
                tag("code", "playbooks/field_report.yml"),
                ": its file has no names, addresses and keys.",
            ),
        ]
    )
