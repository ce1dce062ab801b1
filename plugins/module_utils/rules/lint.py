# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lint a vLLM launch configuration with rules from published reports.

Each rule has its source, its date and the evidence against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import (
    ERROR,
    INFO,
    PLAN,
    SEVERITIES,
    Check,
    Finding,
    Found,
)
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.rules import host as rules_host
from ansible_collections.gb10.cluster.plugins.module_utils.rules import kernels as rules_kernels
from ansible_collections.gb10.cluster.plugins.module_utils.rules import memory as rules_memory
from ansible_collections.gb10.cluster.plugins.module_utils.rules import network as rules_network
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import Situation, View

RULES: tuple[Check[View], ...] = rules_memory.RULES + rules_kernels.RULES + rules_network.RULES + rules_host.RULES

#: The variable of the rules that a user waives, {id: reason}.
WAIVERS = "gb10_serve_waivers"
_UNUSED = Check[View](
    PLAN,
    "waiver-unused",
    INFO,
    why="an unnecessary waiver hides later findings of this rule",
    fix="remove the waiver",
    source="this configuration",
    tested="unit tests",
    evidence="now",
)


def lint(situation: Situation, waivers: Mapping[str, str]) -> list[Finding]:
    """Return the rules' findings, errors first, then by id.

    A waived finding stays in the result, with its reason. A waiver of a rule without findings is itself a finding of
    severity info. Raises ProblemsError for waivers of rules that do not exist and for waivers without a reason.
    """
    if problems := _wrong_waivers(waivers):
        raise ProblemsError(problems)
    findings = [
        Finding(rule, path, text, waivers.get(rule.id, "").strip())
        for rule in RULES
        for path, text in found(rule, situation)
    ]
    unused = waivers.keys() - {finding.check.id for finding in findings}
    findings += [
        Finding(_UNUSED, f"{WAIVERS}.{rule}", f"waived ({reason.strip()}), but the rule has no finding")
        for rule, reason in waivers.items()
        if rule in unused
    ]
    return sorted(findings, key=lambda each: (SEVERITIES.index(each.check.severity), each.check.id, each.place))


def found(rule: Check[View], situation: Situation) -> list[Found]:
    """Return a rule's findings as (input, value), ordered by input, [] without a node of its GPUs."""
    view = View(situation.arguments, situation, rule.gpus)
    return sorted(rule.detect(view), key=itemgetter(0)) if view.nodes else []


def judge(
    situation: Situation | None, arguments: Mapping[str, Any], waivers: Mapping[str, str], places: Mapping[str, str]
) -> tuple[list[Finding], list[Problem]]:
    """Lint a situation with vLLM's effective ``arguments``, none if it is unknown. Errors without a waiver become
    problems.

    ``places``: {variable of the inventory: where its value comes from}, for options and variables that the user did not
    set. The rules do not know that.
    """
    if situation is None:
        return [], []
    try:
        findings = [
            replace(finding, place=places.get(finding.place, finding.place))
            for finding in lint(replace(situation, arguments=arguments), waivers)
        ]
    except ProblemsError as error:
        return [], list(error.problems)
    problems = []
    for finding in stopping(findings):
        fix = f"{finding.check.fix}; or waive it with a reason in {WAIVERS}.{finding.check.id}"
        problems.append(Problem(finding.place, finding.found, finding.check.why, fix))
    return findings, problems


def stopping(findings: Iterable[Finding], least: str = ERROR) -> list[Finding]:
    """Return the findings of at least this severity, except the waived ones."""
    return [
        finding
        for finding in findings
        if SEVERITIES.index(finding.check.severity) <= SEVERITIES.index(least) and not finding.waived
    ]


def on_host(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with paths for a command on one host: argv and environment instead of inventory variables."""
    names = (("gb10_vllm_extra_args.", "argv."), ("gb10_extra_env.", "environment."), (f"{WAIVERS}.", "waivers."))
    return [replace(finding, place=_renamed(finding.place, names)) for finding in findings]


def facts(finding: Finding) -> dict[str, str]:
    """Return a finding as plain data, as the module vllm_lint returns it."""
    check = finding.check
    return {
        "rule": check.id,
        "severity": check.severity,
        "path": finding.place,
        "found": finding.found,
        "why": check.why,
        "fix": check.fix,
        "source": check.source,
        "evidence": check.evidence,
        "exercised": check.tested,
        "disputed": check.disputed,
        "waived": finding.waived,
    }


def report(findings: Iterable[Finding]) -> list[str]:
    """Return the findings as text, one line per finding."""
    return [_line(finding) for finding in findings]


def _renamed(path: str, names: Iterable[tuple[str, str]]) -> str:
    return next((new + path.removeprefix(old) for old, new in names if path.startswith(old)), path)


def _wrong_waivers(waivers: Mapping[str, str]) -> list[Problem]:
    problems, ids = [], {rule.id for rule in RULES}
    for rule, reason in waivers.items():
        path = f"{WAIVERS}.{rule}"
        if rule not in ids:
            expected = "the id of a rule in docs/rules.md"
            problems.append(Problem(path, f"unknown rule {rule!r}", expected, "correct or remove it"))
        elif not (reason or "").strip():
            found, expected = "waiver without a reason", "the reason of the waiver"
            problems.append(Problem(path, found, expected, "set the reason as its value"))
    return problems


def _line(finding: Finding) -> str:
    check = finding.check
    waived = f" (waived: {finding.waived})" if finding.waived else ""
    disputed = f" Disputed: {check.disputed}." if check.disputed else ""
    return (
        f"{check.severity}{waived} {check.id}, {finding.place}: {finding.found}. "
        f"{_sentence(check.why)}. Fix: {check.fix} ({check.source}, {check.evidence}; exercised: {check.tested})."
        f"{disputed}"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
