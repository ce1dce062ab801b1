# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse the last golden result and the documents of benchmarks, which people can edit. An unknown value is None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix as benchmark_matrix
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import report as benchmark_report
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.golden import report as golden_report

#: Most characters of a file, and entries of a list.
_MOST, _ENTRIES = 1024**2, 100


@dataclass(frozen=True)
class Run:
    """A run of a benchmark. Times in ms, speeds in tokens per second, ``hit_rate`` from 0 to 1."""

    concurrency: int
    input_tokens: int
    output_tokens: int
    failed: int
    tokens_per_second: float
    ttft: float | None
    ttft_p99: float | None
    tpot: float | None
    itl: float | None
    decode: float | None
    roofline_percent: float | None
    hit_rate: float | None
    sm_mhz: float | None

    @property
    def lengths(self) -> str:
        """The lengths of prompt and answer."""
        return f"{self.input_tokens} + {self.output_tokens} tokens"


@dataclass(frozen=True)
class Benchmark:
    """A document of a benchmark. ``roofline`` in tokens per second; ``published``: the least and the greatest speed."""

    model: str
    date: str
    facts: Mapping[str, str]
    runs: Sequence[Run]
    roofline: float | None
    published: Sequence[float]
    findings: Sequence[str]


def benchmark_document(text: str) -> Benchmark:
    """Return a document. Raises ValueError for another file."""
    found = _document(text, benchmark_report.FORMAT)
    facts = {name: _word(found.get(key)) for name, key in _FACTS.items()}
    drivers = found.get("drivers")
    facts["driver"] = (
        ", ".join(sorted({str(each) for each in drivers.values()})) if isinstance(drivers, Mapping) else ""
    )
    runs = [_run(each) for each in bounded_json.mappings(found.get("runs"))[:_ENTRIES]]
    if not runs:
        raise ValueError("it has no runs")
    published = [each for each in _entries(found.get("published_tokens_per_second")) if _number(each)]
    return Benchmark(
        _word(found.get("served_model_name")) or "unnamed model",
        _word(found.get("date")),
        facts,
        runs,
        _number(found.get("roofline_tokens_per_second")),
        published[:2],
        list(map(str, _entries(found.get("findings")))),
    )


#: The name of a fact, and its key in a document.
_FACTS = {
    "mode": "mode",
    "stack": "stack",
    "vLLM": "vllm",
    "executor": "executor",
    "quantization": "quantization",
    "nodes": "nodes",
    "tensor parallel size": "tensor",
    "pipeline parallel size": "pipeline",
}


def _run(found: Mapping[str, Any]) -> Run:
    def figure(*path: str) -> float | None:
        value: Any = found
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return _number(value)

    def count(key: str) -> int:
        return round(figure(key) or 0)

    return Run(
        concurrency=count("concurrency"),
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        failed=count("failed"),
        tokens_per_second=figure("tokens_per_second") or 0.0,
        ttft=figure("ttft_ms", "median"),
        ttft_p99=figure("ttft_ms", "p99"),
        tpot=figure("tpot_ms", "median"),
        itl=figure("itl_ms", "median"),
        decode=figure("decode_tokens_per_second"),
        roofline_percent=figure("roofline_percent"),
        hit_rate=figure("hit_rate"),
        sm_mhz=figure("clocks", "sm_mhz"),
    )


@dataclass(frozen=True)
class Golden:
    """The last result of golden answers: the counts by relation, figures, and messages."""

    facts: Mapping[str, str]
    record_date: str
    counts: Mapping[str, int]
    figures: Mapping[str, tuple[float | None, float | None]]
    errors: Sequence[str]
    warnings: Sequence[str]


def golden_result(text: str) -> Golden:
    """Return a result. ``figures`` are pairs of this run's value and the record's.

    Raises ValueError for another file.
    """
    found = _document(text, golden_report.FORMAT)
    return Golden(
        {name: _word(found.get(name)) for name in ("model", "quantization", "date", "vllm", "record_vllm")},
        _word(found.get("record_date")),
        {name: round(_number(found.get(name)) or 0) for name in ("answers", "equal", "near", "different")},
        {
            "Perplexity of the known text": (_number(found.get("perplexity")), _number(found.get("record_perplexity"))),
            "Accepted draft tokens": (_number(found.get("acceptance")), None),
        },
        list(map(str, _entries(found.get("errors")))),
        list(map(str, _entries(found.get("warnings")))),
    )


@dataclass(frozen=True)
class Measured:
    """A model of several. ``speeds``: tokens per second by (requests at the same time, input tokens, output tokens)."""

    name: str
    problem: str
    speeds: Mapping[tuple[int, int, int], float]


@dataclass(frozen=True)
class Matrix:
    """The benchmarks of several models. ``finished``: whether all of them were measured."""

    date: str
    finished: bool
    rows: Sequence[Measured]


def matrix(text: str) -> Matrix:
    """Return the benchmarks of several models. Raises ValueError for another file."""
    found = _document(text, benchmark_matrix.FORMAT)
    rows = [_measured(each) for each in bounded_json.mappings(found.get("rows"))[:_ENTRIES]]
    return Matrix(_word(found.get("date")), found.get("finished") is True, rows)


def _measured(found: Mapping[str, Any]) -> Measured:
    runs = [_run(each) for each in bounded_json.mappings(found.get("runs"))[:_ENTRIES]]
    speeds = {(run.concurrency, run.input_tokens, run.output_tokens): run.tokens_per_second for run in runs}
    return Measured(_word(found.get("name")) or "unnamed model", _word(found.get("problem")), speeds)


def _document(text: str, version: int) -> Mapping[str, Any]:
    found = bounded_json.load(text, _MOST)
    if not isinstance(found, Mapping) or found.get("format") != version:
        raise ValueError(f"it is not a document of format {version}")
    return found


def _entries(value: object) -> list[Any]:
    return value[:_ENTRIES] if isinstance(value, list) else []


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def _number(value: object) -> float | None:
    """Return a number from 0 to 1e12."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e12 else None
