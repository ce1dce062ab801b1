# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the result of ``vllm bench serve`` and the speed of the GPU during a run.

Source of the keys: vLLM's benchmarks/serve.py, 0.18.1 to 0.33.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import MOST, Run
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

#: No valid number of a result is larger: 30 years in ms.
_LARGEST = 1e12
#: The statistics of a latency.
_STATISTICS = ("mean", "median", "p99")
#: nvidia-smi's fields of a sample.
CLOCK_FIELDS = ("clocks.sm", "power.draw", "temperature.gpu")


def result(text: str, run: Run) -> dict[str, Any]:
    """Return the result of a run. Raises ValueError with all missing and impossible values.

    ``ttft_ms``, ``tpot_ms`` and ``itl_ms`` have the mean, median and p99 in milliseconds. ``seconds``: of the whole
    run. ``tokens_per_second``: output of all requests together. An embedding model has no output: there they are the
    read tokens, ``ttft_ms`` is the time to the vector, and the other latencies are 0. ``acceptance_percent``: of draft
    tokens; ``acceptance_length``: tokens of an answer for each step of the model, 1 or more. None without speculative
    decoding.
    """
    found = bounded_json.load(text, MOST)
    if not isinstance(found, Mapping):
        raise ValueError("it is not a JSON object")
    reader, generates = _Reader(found), run.output_tokens > 0
    completed = reader.count("completed", run.requests)
    # A missing number of failures means that all others failed.
    failed = reader.count("failed", run.requests) if "failed" in found else run.requests - completed
    # The client has them from the server's counters before and after its requests.
    rate, length = "spec_decode_acceptance_rate", "spec_decode_acceptance_length"
    measured = {
        "completed": completed,
        "failed": failed,
        "seconds": reader.number("duration"),
        "total_input_tokens": reader.count("total_input_tokens", _LARGEST),
        # Without the server's count, the client counts tokens of the text, which can be some more.
        "total_output_tokens": reader.count("total_output_tokens", 2 * run.requests * run.output_tokens)
        if generates
        else 0,
        "requests_per_second": reader.number("request_throughput"),
        "tokens_per_second": reader.number("output_throughput" if generates else "total_token_throughput"),
        "ttft_ms": reader.statistics("ttft" if generates else "e2el"),
        "tpot_ms": reader.statistics("tpot") if generates else dict.fromkeys(_STATISTICS, 0.0),
        "itl_ms": reader.statistics("itl") if generates else dict.fromkeys(_STATISTICS, 0.0),
        "acceptance_percent": reader.number(rate, 100) if rate in found else None,
        "acceptance_length": reader.number(length) if length in found else None,
    }
    if reader.problems:
        raise ValueError("; ".join(reader.problems))
    if completed + failed != run.requests:
        raise ValueError(f"{completed} completed and {failed} failed requests of {run.requests}")
    return measured


class _Reader:
    """Reads numbers and collects all errors."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found
        self.problems: list[str] = []

    def number(self, key: str, most: float = _LARGEST) -> float:
        value = self._found.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            self.problems.append(f"{key} is {str(value)[:40]!r}, expected a number from 0 to {most:g}")
            return 0.0
        return float(value)

    def count(self, key: str, most: float) -> int:
        value = self.number(key, most)
        if value != int(value):
            self.problems.append(f"{key} is {value:g}, expected a whole number")
        return int(value)

    def statistics(self, name: str) -> dict[str, float]:
        return {each: round(self.number(f"{each}_{name}_ms"), 3) for each in _STATISTICS}


def clocks(output: str) -> dict[str, float]:
    """Return {field: value} of one sample of nvidia-smi, {} for other output. Fields without a number are left out."""
    found = {}
    for name, word in zip(CLOCK_FIELDS, output.strip().partition("\n")[0].split(","), strict=False):
        try:
            found[name] = float(word)
        except ValueError:
            continue
    return found


def clock_summary(samples: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Return {sm_mhz, power_w, temperature_c}: median clock and power, and the highest temperature; None if unknown."""
    values = {name: [sample[name] for sample in samples if name in sample] for name in CLOCK_FIELDS}
    clock, power, temperature = (values[name] for name in CLOCK_FIELDS)
    return {
        "sm_mhz": median(clock) if clock else None,
        "power_w": median(power) if power else None,
        "temperature_c": max(temperature) if temperature else None,
    }


def hit_rate(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the prefix cache's share of hits between two readings of its counters, None if unknown."""
    if not all("cache_queries" in each and "cache_hits" in each for each in (before, after)):
        return None
    queries, hits = (after[name] - before[name] for name in ("cache_queries", "cache_hits"))
    # A server that restarted meanwhile counts from 0.
    return round(hits / queries, 3) if queries > 0 and 0 <= hits <= queries else None
