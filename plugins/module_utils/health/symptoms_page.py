# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generates docs/troubleshooting.md from the tables of symptoms."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Check
from ansible_collections.gb10.cluster.plugins.module_utils.health import symptoms_observed
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES
from ansible_collections.gb10.cluster.plugins.module_utils.rules.lint import linked

_HEAD = """\
# Troubleshooting by symptom

<!-- Written by plugins/module_utils/health/symptoms_page.py.
GB10_RENEW=1 pytest tests/unit/health/test_symptoms.py renews it. -->

When a start fails, `site.yml` and `switch_model.yml` end with the first error of its log. Its cause and fix from this
page follow, with a link to the entry. `status.yml` shows the same for the last error, and for wrong states of the nodes
and the API. For an error that this page does not have they show that its cause is unknown. Then read the whole log,
`journalctl -u gb10-vllm -u gb10-ray` on every node, and search vLLM's issues for the message.

**This project has no Spark.** Each entry names its source and whether it was seen in a test of this project. Rules
([rules.md](rules.md)) report many of these problems before a start.
"""


def document() -> str:
    """Return the page."""
    symptoms = (*CAUSES, *CONSEQUENCES, *STATES.values(), *causes.CAUSES, *symptoms_observed.SYMPTOMS)
    topics = list(dict.fromkeys(symptom.topic for symptom in symptoms))
    count = f"{len(symptoms)} symptoms, {len(CAUSES) + len(CONSEQUENCES)} of them with log lines."
    contents = [f"- [{topic}](#{_anchor(topic)})" for topic in topics]
    lines = [_HEAD, count, "", *contents]
    for topic in topics:
        lines += ["", f"## {topic}"]
        lines += [line for symptom in symptoms if symptom.topic == topic for line in _entry(symptom)]
    return "\n".join(lines) + "\n"


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-").replace(".", "")


def _entry(symptom: Check[str]) -> Iterable[str]:
    yield from ("", f"### {symptom.id}", "", *(f"    {line.strip()}" for line in symptom.shows.splitlines()), "")
    yield f"- Cause: {_text(symptom.why)}."
    yield f"- Fix: {_text(symptom.fix)}."
    if symptom.rules:
        yield f"- Rules: {', '.join(f'[{rule}](rules.md#{rule})' for rule in symptom.rules)}."
    yield f"- Source: {linked(symptom.source)}."
    yield f"- Test: {symptom.tested}."


def _text(text: str) -> str:
    return linked(text.replace("<", "&lt;").replace("*", "\\*"))
