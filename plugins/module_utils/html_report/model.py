# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The views of the page about the model: golden answers, benchmarks, and the speed of several models."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gb10.cluster.plugins.module_utils.html_report import parse
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.parse import Benchmark, Run
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.plot import plot
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.style_data import HEAT
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.view import Cell, Table, View

#: Most benchmarks on the page.
MOST = 12
_HEAD = (
    *("at once", "input", "output", "failed", "tokens/s", "TTFT ms", "p99", "TPOT ms", "ITL ms"),
    *("decode tokens/s", "of the bound", "cache hits", "MHz"),
)


def golden(text: str | None) -> View | None:
    """Return the last result of golden answers, None without one. ``text``: its file."""
    if text is None:
        return None
    try:
        found = parse.golden_result(text)
    except ValueError as error:
        return {"ignored": error}
    counts, facts = found.counts, found.facts
    status, words = _status(found)
    compared = ", ".join(f"{counts[each]} {each}" for each in ("equal", "near", "different"))
    return {
        "ignored": "",
        "status": status,
        "words": words,
        "facts": {
            "Model": f"{facts['model']} {facts['quantization']}".strip(),
            "Run": facts["date"] + (f" (vLLM {facts['vllm']})" if facts["vllm"] else ""),
            "Record": f"{found.record_date} (vLLM {facts['record_vllm']})" if found.record_date else "none",
            "Answers": compared if found.record_date else f"{counts['answers']}, not compared",
            **{name: _pair(*values) for name, values in found.figures.items()},
        },
        "messages": [*(("error", each) for each in found.errors), *(("warning", each) for each in found.warnings)],
    }


def _status(found: parse.Golden) -> tuple[str, str]:
    """Return the severity, "" for none, and the result in words."""
    answers, warned = found.counts["answers"], _warnings(found)
    if found.errors:
        return "error", "The golden answers failed."
    if not found.record_date:
        return "warning", f"{answers} answers without a record: nothing was compared{f', {warned}' if warned else ''}."
    words = "All answers agree with the record" if answers else "No answer was compared"
    return ("warning", f"{words}, but with {warned}.") if warned else ("", f"{words}.")


def _warnings(found: parse.Golden) -> str:
    count = len(found.warnings)
    return f"{count} warning{'s' if count > 1 else ''}" if count else ""


def golden_verdict(text: str | None) -> tuple[str, str]:
    """Return the severity of the last golden result and its words for the top of the page, both "" without a
    message."""
    try:
        found = parse.golden_result(text or "")
    except ValueError:
        return "", ""
    if found.errors:
        return "error", "the last golden answers failed"
    return ("warning", f"the last golden answers have {_warnings(found)}") if found.warnings else ("", "")


def _pair(now: float | None, before: float | None) -> str:
    return "" if now is None else f"{now:.4g}" + ("" if before is None else f" (record {before:.4g})")


def benchmarks(texts: Mapping[str, str]) -> View:
    """Return the last benchmark of each model, the newest one first. ``texts``: documents by path."""
    views: list[View] = []
    for path, text in list(texts.items())[:MOST]:
        try:
            views.append(_benchmark(parse.benchmark_document(text), f"benchmark-{len(views)}"))
        except ValueError as error:
            views.append({"ignored": error, "file": path.rpartition("/")[2]})
    return {"views": views, "older": len(texts) - len(views)}


def _benchmark(found: Benchmark, name: str) -> View:
    series: dict[str, list[Run]] = {}
    for run in sorted(found.runs, key=lambda run: (run.input_tokens, run.output_tokens, run.concurrency)):
        series.setdefault(run.lengths, []).append(run)
    plots = []
    if any(len({run.concurrency for run in runs}) > 1 for runs in series.values()):
        speed = {key: [(run.concurrency, run.tokens_per_second) for run in runs] for key, runs in series.items()}
        latency = {key: [(run.concurrency, run.itl or 0.0) for run in runs] for key, runs in series.items()}
        axis = "requests at the same time"
        plots = [
            plot(speed, f"{name}-tokens", "Output tokens per second of all requests", axis),
            plot(latency, f"{name}-latency", "Median inter-token latency in ms", axis),
        ]
    return {
        "ignored": "",
        "name": name,
        "model": found.model,
        "date": found.date,
        "facts": ", ".join(f"{key} {value}" for key, value in found.facts.items() if value),
        "findings": found.findings,
        "decode": _decode(found),
        "plots": plots,
        "runs": Table(f"Runs of {found.model}", _HEAD, list(map(_row, found.runs)), "figures"),
    }


def _decode(found: Benchmark) -> View | None:
    """Return the speed of a single request, next to the memory plan's upper bound and the published speeds."""
    single = [run for run in found.runs if run.concurrency == 1 and run.decode]
    if not single:
        return None
    best = max(single, key=lambda run: run.decode or 0)
    published = " to ".join(dict.fromkeys(f"{speed:g}" for speed in found.published))
    return {
        "speed": f"{best.decode:.1f}",
        "percent": best.roofline_percent if found.roofline else None,
        "share": _number(best.roofline_percent, 0, " %"),
        "bound": _number(found.roofline, 1),
        "published": published if len(found.published) == 2 else "",
    }


def _row(run: Run) -> list[object]:
    hits = None if run.hit_rate is None else 100 * run.hit_rate
    times = ((run.ttft, 0), (run.ttft_p99, 0), (run.tpot, 1), (run.itl, 1), (run.decode, 1))
    return [
        *(run.concurrency, run.input_tokens, run.output_tokens, run.failed, f"{run.tokens_per_second:.1f}"),
        *(_number(value, digits) for value, digits in times),
        _number(run.roofline_percent, 0, " %"),
        _number(hits, 0, " %"),
        _number(run.sm_mhz, 0),
    ]


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def matrix(text: str | None) -> View | None:
    """Return the speed of each model and run, None without a record. ``text``: the record of benchmark_all.yml."""
    if text is None:
        return None
    try:
        found = parse.matrix(text)
    except ValueError as error:
        return {"ignored": error}
    return {
        "ignored": "",
        "date": found.date,
        "finished": found.finished,
        "heat": _heat_map(found),
        "failed": [row for row in found.rows if row.problem],
    }


def _heat_map(found: parse.Matrix) -> Table:
    shapes = sorted({shape for row in found.rows for shape in row.speeds}, key=lambda shape: (*shape[1:], shape[0]))
    # Speeds of different numbers of requests differ by a factor of 10, so each column has its own scale.
    best = {shape: max(row.speeds.get(shape, 0.0) for row in found.rows) for shape in shapes}
    head = ["model", *(f"{number} at once, {given} + {answered}" for number, given, answered in shapes)]
    rows = [
        [row.name, *(_cell(row.speeds.get(shape), best[shape]) for shape in shapes)] for row in found.rows if row.speeds
    ]
    return Table("Output tokens per second", head, rows, "figures names heat")


def _cell(speed: float | None, best: float) -> Cell:
    """Return a cell whose color shows the speed as a part of the best one."""
    if speed is None:
        return Cell("-")
    return Cell(f"{speed:.1f}", heat=round((HEAT - 1) * speed / best) if best else 0)
