# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generates docs/rules.md, docs/troubleshooting.md and docs/verification.md from the registry of checks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import (
    ERROR,
    LOG,
    PAGES,
    PLAN,
    RUNNING,
    SEVERITIES,
    Check,
)
from ansible_collections.gb10.cluster.plugins.module_utils.check_pages.registry import CHECKS
from ansible_collections.gb10.cluster.plugins.module_utils.launch.choices import MESSAGES
from ansible_collections.gb10.cluster.plugins.module_utils.rules.lint import WAIVERS
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

_RULES = f"""\
# Rules for serving

<!-- Written by plugins/module_utils/check_pages/pages.py.
GB10_RENEW=1 pytest tests/unit/check_pages renews it. -->

Lint rules for vLLM on DGX Sparks (compute capability 12.1) and Jetson Thors (11.0), from published reports.
An error marks a configuration that fails to start, returns wrong answers or takes the host down, with no
evidence to the contrary. A warning marks a configuration that may do so. Info marks a choice. A finding can be
waived with a reason, `{WAIVERS}: {{id: reason}}`, and the report then shows that reason. This project has no
Spark: unit tests cover the rules, but other users reported the effects, at the given date.
"""
_TABLE = """
| id | severity | GPU | when | why | fix | source | date |
|---|---|---|---|---|---|---|---|"""
_ELSEWHERE = """
## Rules outside the plan

The plan finds every other rule. It sets or refuses the values of these, so only other launches can have them.
"""
#: The first line of the symptoms that neither a log nor the status shows.
HAND_WRITTEN = "<!-- Written by hand from here. -->"
_TROUBLESHOOTING = """\
# Troubleshooting by symptom

<!-- Written by plugins/module_utils/check_pages/pages.py.
GB10_RENEW=1 pytest tests/unit/check_pages renews it, except for the end. -->

When a start fails, `site.yml` and `switch_model.yml` end with the first error of its log. Its cause and fix from this
page follow, with a link to the entry. `status.yml` shows the same for the last error, and for wrong states of the nodes
and the API. For an error that this page does not have they show that its cause is unknown. Then read the whole log,
`journalctl -u gb10-vllm -u gb10-ray` on every node, and search vLLM's issues for the message.

**This project has no Spark.** Each entry names its source and whether it was seen in a test of this project. Rules
([rules.md](rules.md)) report many of these problems before a start.
"""
_VERIFICATION = """\
# Verification

<!-- Written by plugins/module_utils/check_pages/pages.py.
GB10_RENEW=1 pytest tests/unit/check_pages renews it. -->

`playbooks/verify.yml` reads all nodes and compares them with each other, with their own files, and with these checks.
It changes nothing and needs no lock. It also works on a cluster that another tool set up.

    ansible-playbook playbooks/verify.yml -i inventories/mine
    ansible-playbook playbooks/verify.yml -i inventories/mine --tags fabric,nccl
    ansible-playbook playbooks/verify.yml -i inventories/mine -e verify_quick=true

Each finding has the ID of a check, the found and the expected state, the cause or effect, and the fix. A table lists
all differences between nodes. The run fails if a finding reaches `verify_fail_on`
([variables](../roles/verify/README.md)).

The checks of GPU kernels need no model. `kernel-missing` counts the programs with code for the GPU in each extension
of the runtime, without loading it. On a node without a GPU, set `-e verify_capability=12.1`. The check finds an
extension without any code for the GPU, but not a single missing kernel. An image is read only while it runs.
FlashInfer's and PyTorch's own kernels are not read. `gpu-probe-failed` runs small kernels on each GPU.

The checks `log-*` compare [each rank's messages](#messages-of-a-start) in vLLM's running start with its command line,
with the other ranks, and with the launch record. Only names and texts of known messages leave a node. A message that a
rank does not log, or that journald has removed, counts as unknown. NCCL names its network only with `NCCL_DEBUG=INFO`
in `gb10_extra_env`.

**This project has no Spark.** Each check names its source and its test.
"""
_REPORT = """
## The report

    ansible-playbook playbooks/verify.yml -i inventories/mine -e verify_report=report.html

`verify_report` is a file on the controller, "" for none. The run writes one HTML page with

- the worst severity, or that all checks passed, and all findings with expected state, cause, fix and a link here;
- a drawing of nodes, rails and cables with addresses, speed, MTU and state; the API, its load, and the watchdog;
- the differences between nodes;
- the programs with code for each GPU, and the results of the GPU probe;
- evidence in vLLM's log for the decisions of the plan;
- the last golden result, the newest benchmark of each model, and the last result of `benchmark_all.yml` as a heat map,
  from the folder `.gb10` in the inventory (`verify_records`);
- versions and state of each node.

A section without data is left out. The page loads nothing and contains no program. Text from nodes, logs and records is
escaped, and text in a known form of a key is replaced. The page has names and addresses, so only its owner can read the
file. For an issue, use
[playbooks/field_report.yml](../roles/field_report/README.md)."""


_MESSAGES = """
## Messages of a start

The journal of `gb10-vllm` on the head has the lines of all ranks with Ray. With mp, the journal of each node has the
lines of its own ranks. The plan turns Ray's deduplication of log lines off. It compares lines without their words that
contain digits, so it drops different kernels as repeated lines (tested with Ray 2.60).

The launch record and the field report keep these values. All ranks of a pipeline stage on equal hardware must agree in
the compared ones. Many messages are logged only by the first rank of a node, or by rank 0.

| name | logged by | compared | read in the source code of vLLM |
|---|---|---|---|"""


def rules() -> str:
    """Return docs/rules.md."""
    found = sorted(_of(PLAN), key=lambda rule: rule.id)
    counts = ", ".join(f"{sum(rule.severity == severity for rule in found)} {severity}" for severity in SEVERITIES)
    levels: dict[str, list[str]] = {}
    for rule in found:
        levels.setdefault(rule.tested, []).append(f"`{rule.id}`")
    common = max(levels, key=lambda level: len(levels[level]))
    return _joined(
        _RULES,
        f"{len(found)} rules: {counts}.",
        _TABLE,
        *map(_row, found),
        "\n## Conflicting evidence\n",
        *(f"- `{rule.id}`: {linked(rule.disputed)}." for rule in found if rule.disputed),
        _ELSEWHERE,
        *(f"- `{rule.id}`: {rule.found_by}." for rule in found if rule.found_by),
        "\n## Test coverage\n",
        *(
            f"- {level}: {'all others' if level == common else ', '.join(ids)}."
            for level, ids in sorted(levels.items())
        ),
    )


def troubleshooting(written: str) -> str:
    """Return docs/troubleshooting.md. ``written``: its end from HAND_WRITTEN on, which has no checks."""
    found = [check for check in CHECKS if PAGES[check.phase] == PAGES[LOG]]
    topics = list(dict.fromkeys(check.topic for check in found))
    known = re.findall("^### ", written, re.MULTILINE)
    return _joined(
        _TROUBLESHOOTING,
        f"{len(found) + len(known)} symptoms, {len(_of(LOG))} of them with log lines.",
        *_contents([*topics, *re.findall("^## (.+)$", written, re.MULTILINE)]),
        *_sections(topics, found),
        f"\n{written}".rstrip(),
    )


def verification() -> str:
    """Return docs/verification.md."""
    found = _of(RUNNING)
    errors = sum(check.severity == ERROR for check in found)
    return _joined(
        _VERIFICATION,
        f"{len(found)} checks: {errors} for errors, {len(found) - errors} for warnings.",
        *_contents(GROUPS),
        _REPORT,
        *_sections(GROUPS, found),
        _MESSAGES,
        *(
            f"| {name} | {each.by} | {'yes' if each.compared else ''} | {each.releases} |"
            for name, each in MESSAGES.items()
        ),
    )


def linked(text: str) -> str:
    """Return text for a page of docs, with owner/name#number and docs/name.md as links."""
    text = re.sub(r"\b([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)#(\d+)", r"[\1#\2](https://github.com/\1/issues/\2)", text)
    return re.sub(r"\bdocs/((\w+\.md)(?:#[\w-]+)?)", r"[\2](\1)", text)


def _of(phase: str) -> list[Check[Any]]:
    return [check for check in CHECKS if check.phase == phase]


def _joined(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def _row(rule: Check[Any]) -> str:
    gpus = ", ".join(rule.gpus) or "any"
    texts = (rule.shows, rule.why, rule.fix, linked(rule.source), rule.evidence)
    cells = (f"`{rule.id}`", rule.severity, gpus, *texts)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace('<', '&lt;') for cell in cells)} |"


def _contents(topics: Iterable[str]) -> Iterable[str]:
    links = (f"[{topic}](#{topic.lower().replace(' ', '-').replace('.', '')})" for topic in topics)
    return ("", "Topics: " + "; ".join(links) + ".")


def _sections(topics: Iterable[str], checks: Iterable[Check[Any]]) -> Iterable[str]:
    for topic in topics:
        yield from ("", f"## {topic}", *(line for check in checks if check.topic == topic for line in _section(check)))


def _section(check: Check[Any]) -> Iterable[str]:
    running = check.phase == RUNNING
    rules = ", ".join(f"[{rule}](rules.md#{rule})" for rule in check.rules)
    texts = {
        f"Expected (else {'an error' if check.severity == ERROR else 'a warning'})": _text(check.expected),
        "Cause or effect" if running else "Cause": _text(check.why),
        "Releases": check.bounds(),
        "Fix": _text(check.fix) + (f"; rules: {rules}" if rules else ""),
        "Source": f"{linked(check.source)}. Test: {check.tested}",
    }
    shown = () if running else (f"    {line.strip()}" for line in check.shows.splitlines())
    return ("", f"### {check.id}", *shown, *(f"- {name}: {text}." for name, text in texts.items() if text))


def _text(text: str) -> str:
    return linked(text.replace("<", "&lt;").replace("*", "\\*"))
