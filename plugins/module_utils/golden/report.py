# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict on golden answers as text, as the record's new content, and as a document for reports."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.golden import compare, parse
from ansible_collections.gb10.cluster.plugins.module_utils.golden import record as golden_record
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import (
    DIFFERENT,
    EQUAL,
    NEAR,
    Bounds,
    Comparison,
    Identity,
    Record,
    Run,
)

#: The format of document().
FORMAT = 1
_SHOWN = 70


def result(
    data: object, content: str | None, bounds: Bounds, identity: Identity, date: str, path: str, renew: bool
) -> dict[str, Any]:
    """Return {lines, end, problem, record, result} of a run's plain data and of the record's content, None for none.

    ``end`` is the comparison in one line, and where the record is or could be. ``problem`` is the reason to fail, or
    "". ``record`` is the text of the new record at ``path`` if ``renew`` is set, else "". ``result`` is the text of
    document(). Neither differences from the old record nor errors in it fail a renewal.
    """
    record = None
    try:
        run = parse.run(data, "run")
        record = None if content is None else golden_record.read(content, path, identity)
    except parse.InvalidError as error:
        return _invalid(str(error), identity, date)
    except ProblemsError as error:
        if not renew:
            return _invalid(str(error), identity, date)
    verdict = compare.judge(run, record, bounds)
    without = compare.judge(run, None, bounds) if renew else verdict
    failures = [*without.errors, *(without.warnings if bounds.strict else [])]
    new = Record(identity, date, run) if renew and not failures else None
    text = golden_record.text(new) if new else ""
    compared, where = _lines(run, record, verdict, bool(text)), _where(record, path, bool(text))
    lines = [*compared, *where, *(_answers(run) if renew or not record else [])]
    last = document(identity, date, run, new or record, compare.judge(run, new, bounds) if new else verdict)
    end = where if text else [compared[0], *where]
    return {"lines": lines, "end": end, "problem": _problem(failures, record, path), "record": text, "result": last}


def document(identity: Identity, date: str, run: Run | None, record: Record | None, verdict: compare.Verdict) -> str:
    """Return the result as JSON: figures and messages, without the answers. ``run`` is None if it was invalid."""
    counts = Counter(each.relation for each in verdict.comparisons)
    old = record.run if record else None
    fields = {
        "format": FORMAT,
        "date": date,
        **asdict(identity),
        "vllm": run.vllm if run else "",
        "record_date": record.date if record else None,
        "record_vllm": old.vllm if old else None,
        "answers": len(run.answers) if run else 0,
        **{relation: counts[relation] for relation in (EQUAL, NEAR, DIFFERENT)},
        "perplexity": _figure(run.perplexity if run else None),
        "record_perplexity": _figure(old.perplexity if old else None),
        "acceptance": _figure(run.acceptance if run else None),
        "errors": [_excerpt(each, 200) for each in verdict.errors],
        "warnings": [_excerpt(each, 200) for each in verdict.warnings],
    }
    return json.dumps(fields, indent=1) + "\n"


def _invalid(problem: str, identity: Identity, date: str) -> dict[str, Any]:
    last = document(identity, date, None, None, compare.Verdict(errors=[problem]))
    return {"lines": [], "end": [], "problem": problem, "record": "", "result": last}


def _figure(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _lines(run: Run, record: Record | None, verdict: compare.Verdict, renewed: bool) -> list[str]:
    lines = [f"golden answers: {_summary(verdict.comparisons, record)}"]
    lines += [_line(each) for each in verdict.comparisons if each.relation != EQUAL]
    old = record.run if record else None
    numbers = (
        [f"perplexity {run.perplexity:.4g}{_former(old.perplexity if old else None)}"]
        if run.perplexity is not None
        else []
    )
    if run.acceptance is not None:
        numbers.append(f"draft acceptance {run.acceptance:.2f}{_former(old.acceptance if old else None)}")
    lines += [f"  {', '.join(numbers)}"] if numbers else []
    lines += [f"  note: {_excerpt(note, 200)}" for note in run.notes]
    lines += [f"warning: {_excerpt(each, 200)}" for each in verdict.warnings]
    # A renewal reports differences without failing.
    lines += [f"{'warning' if renewed else 'error'}: {_excerpt(each, 200)}" for each in verdict.errors]
    return lines


def _answers(run: Run) -> list[str]:
    return [f"  {name}: {_excerpt(answer.text)}" for name, answer in run.answers.items()]


def _where(record: Record | None, path: str, renewed: bool) -> list[str]:
    if renewed:
        return [f"recorded in {path}; commit it after reading the answers"]
    if not record:
        return [f"no record {path}. Read the answers; to record them: playbooks/golden.yml -e golden_record=true"]
    return []


def _summary(comparisons: list[Comparison], record: Record | None) -> str:
    if not record:
        return "nothing was compared: no record"
    counts = Counter(each.relation for each in comparisons)
    found = ", ".join(f"{counts[relation]} {relation}" for relation in (EQUAL, NEAR, DIFFERENT))
    return f"{found}, compared with the record of {record.date} (vLLM {record.run.vllm or 'unknown'})"


def _line(each: Comparison) -> str:
    distances = f"mean distance {each.mean:.3f}, largest {each.largest:.3f}"
    return f"  {each.name}: {each.relation}, {each.agreed} of {each.total} tokens, {distances}: {each.why}"


def _former(value: float | None) -> str:
    return "" if value is None else f" (record {value:.4g})"


def _problem(failures: list[str], record: Record | None, path: str) -> str:
    if not failures:
        return ""
    found = "; ".join(_excerpt(each, 200) for each in failures)
    expected, fix = "valid answers", "read the log of gb10-vllm.service"
    if record:
        expected = f"the answers of {path}"
        fix = "find the changed kernel, patch or weights, or renew the record after an intended change"
    return f"The golden answers failed: {found}. Expected: {expected}. Fix: {fix}. See docs/golden.md."


def _excerpt(text: str, most: int = _SHOWN) -> str:
    """Return the begin of a text on one printable line."""
    line = " ".join("".join(each if each.isprintable() or each.isspace() else "?" for each in text[: 4 * most]).split())
    return line if len(line) <= most else f"{line[:most]}..."
