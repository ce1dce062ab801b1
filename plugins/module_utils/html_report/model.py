# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sections of the page about the model: golden answers and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.html_report import parse
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.html import Markup, join, table, tag, terms
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.parse import Benchmark, Run
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.plot import plot
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.sections import SYMBOLS

#: Most benchmarks on the page.
MOST = 12
_HEAD = (
    *("at once", "input", "output", "failed", "tokens/s", "TTFT ms", "p99", "TPOT ms", "ITL ms"),
    *("decode tokens/s", "of the bound", "cache hits", "MHz"),
)


def golden(text: str | None) -> Iterator[Markup]:
    """Yield the last result of golden answers. ``text``: its file, None without one."""
    if text is None:
        yield tag(
            "p", "No result. ", tag("code", "playbooks/golden.yml"), " compares the model's answers with a record."
        )
        return
    try:
        found = parse.golden_result(text)
    except ValueError as error:
        yield tag("p", f"{SYMBOLS['warning']} The file of the last result is ignored: {error}.", class_="warning")
        return
    counts = found.counts
    status, words = _status(found)
    yield tag("p", f"{SYMBOLS[status]} {words}", class_=status or "good")
    facts = found.facts
    record = join([found.record_date, f" (vLLM {facts['record_vllm']})"]) if found.record_date else "none"
    compared = ", ".join(f"{counts[each]} {each}" for each in ("equal", "near", "different"))
    yield terms(
        [
            ("Model", " ".join(filter(None, (facts["model"], facts["quantization"])))),
            ("Run", join([facts["date"], f" (vLLM {facts['vllm']})" if facts["vllm"] else None])),
            ("Record", record),
            ("Answers", compared if found.record_date else f"{counts['answers']}, not compared"),
            *((name, _pair(*values)) for name, values in found.figures.items()),
        ]
    )
    messages = [("error", each) for each in found.errors] + [("warning", each) for each in found.warnings]
    if messages:
        entries = (tag("li", tag("b", f"{SYMBOLS[kind]} {kind}", class_=kind), each) for kind, each in messages)
        yield tag("ul", *entries, class_="found")


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


def benchmarks(texts: Mapping[str, str]) -> Iterator[Markup]:
    """Yield the last benchmark of each model, the newest one first. ``texts``: documents by path."""
    for index, (path, text) in enumerate(list(texts.items())[:MOST]):
        try:
            yield from _benchmark(parse.benchmark_document(text), f"benchmark-{index}")
        except ValueError as error:
            yield tag("p", f"{SYMBOLS['warning']} {path.rpartition('/')[2]} is ignored: {error}.", class_="warning")
    if len(texts) > MOST:
        yield tag("p", f"{len(texts) - MOST} older ones are left out.")
    if not texts:
        yield tag("p", "No benchmark. ", tag("code", "playbooks/benchmark_model.yml"), " measures the served model.")


def _benchmark(found: Benchmark, name: str) -> Iterator[Markup]:
    yield tag("h3", found.model, id=name)
    words = ", ".join(f"{key} {value}" for key, value in found.facts.items() if value)
    yield tag("p", f"{found.date}: {words}", class_="muted")
    yield from (tag("p", f"{SYMBOLS['error']} {each}", class_="error") for each in found.findings)
    yield from _decode(found)
    series: dict[str, list[Run]] = {}
    for run in sorted(found.runs, key=lambda run: (run.input_tokens, run.output_tokens, run.concurrency)):
        series.setdefault(run.lengths, []).append(run)
    if any(len({run.concurrency for run in runs}) > 1 for runs in series.values()):
        speed = {key: [(run.concurrency, run.tokens_per_second) for run in runs] for key, runs in series.items()}
        latency = {key: [(run.concurrency, run.itl or 0.0) for run in runs] for key, runs in series.items()}
        plots = (
            ("tokens", "Output tokens per second of all requests", speed),
            ("latency", "Median inter-token latency in ms", latency),
        )
        yield tag("div", *(_figure(f"{name}-{key}", title, each) for key, title, each in plots), class_="plots")
    yield tag("div", table(f"Runs of {found.model}", _HEAD, map(_row, found.runs)), class_="figures")


def _figure(name: str, title: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> Markup:
    drawn = plot(series, name, title, ("requests at the same time", title))
    return tag("figure", tag("figcaption", title), drawn)


def _decode(found: Benchmark) -> Iterator[Markup]:
    """Yield the speed of a single request, next to the memory plan's upper bound and the published speeds."""
    best = max(
        (run for run in found.runs if run.concurrency == 1 and run.decode),
        key=lambda run: run.decode or 0,
        default=None,
    )
    if best is None:
        return
    parts: list[object] = [f"One request at a time: {best.decode:.1f} tokens/s"]
    if found.roofline and best.roofline_percent is not None:
        share = f"{best.roofline_percent:.0f} %"
        meter = tag(
            "meter", share, min=0, max=100, value=best.roofline_percent, aria_label=f"{share} of the upper bound"
        )
        parts += [", ", meter, f" {share} of {found.roofline:.1f}, the upper bound by memory bandwidth"]
    if len(found.published) == 2:
        low, high = found.published
        parts.append(f"; published: {low:g}" + ("" if low == high else f" to {high:g}"))
    yield tag("p", *parts)


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
