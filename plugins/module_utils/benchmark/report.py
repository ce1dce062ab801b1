# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of a benchmark, its text for people, and its comparison with earlier documents and published figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import RANDOM, SPEED_BENCH, SPEED_MODE, TEXT
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

FORMAT = 1
#: Most characters of an earlier document.
_MOST = 1024**2
#: The keys of a document that two comparable benchmarks have in common: the model and its distribution.
_SHAPE = ("model", "revision", "quantization", "nodes", "tensor", "pipeline", "data")
#: The keys of a run that two comparable runs have in common.
_LENGTHS = ("concurrency", "input_tokens", "output_tokens")
#: The results of the module vllm_benchmark.
MEASURED = ("result", "clocks", "hit_rate")
#: A speed below this share of the source's is explained.
_LOW = 0.9
#: The compared speeds of a run, by their name in words.
_SPEEDS: Mapping[str, str] = {
    "tokens_per_second": "tokens/s of all requests",
    "decode_tokens_per_second": "tokens/s of one request",
}


def document(plan: Plan, facts: Mapping[str, Any], measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document. ``facts``: {date, mode, seed, drivers: {node: release}, network: see network.py}.

    Each run of ``measured`` is {concurrency, input_tokens, output_tokens, requests, data, result, clocks, hit_rate}.
    ``decode_tokens_per_second`` is 1000 / the median TPOT. ``roofline_percent`` is its share of the memory plan's upper
    bound, only for one request at a time: that bound does not hold for several. ``input_mean`` and ``output_mean`` are
    the real tokens of an answered request.
    """
    expected, runtime = plan.serve.expected, plan.runtime
    return {
        "format": FORMAT,
        **facts,
        "model": plan.model,
        "revision": plan.store.revision if plan.store else "",
        "quantization": plan.quantization,
        "served_model_name": plan.served_model_name,
        "stack": plan.stack.name,
        "vllm": plan.stack.vllm,
        "runtime": runtime.image if runtime.kind == "container" else runtime.kind,
        "executor": plan.executor,
        "nodes": len(plan.nodes),
        "tensor": plan.tensor_parallel_size,
        "pipeline": plan.pipeline_parallel_size,
        "data": plan.data_parallel_size,
        "args": [*plan.serve.args, *plan.serve.user_args],
        "roofline_tokens_per_second": expected.tokens_per_second or None,
        "published_tokens_per_second": list(expected.published),
        "measured_by_source": load.plain(expected.measured),
        "runs": [_run(each, expected.tokens_per_second) for each in measured],
    }


def _run(measured: Mapping[str, Any], roofline: float) -> dict[str, Any]:
    result = measured["result"]
    time = result["tpot_ms"]["median"]
    decode = 1000 / time if time else None
    alone = decode and roofline and measured["concurrency"] == 1
    done = result["completed"]
    return {
        **{key: measured[key] for key in (*_LENGTHS, "requests", "data")},
        **result,
        "input_mean": round(result["total_input_tokens"] / done) if done else None,
        "output_mean": round(result["total_output_tokens"] / done) if done else None,
        "decode_tokens_per_second": decode and round(decode, 2),
        "roofline_percent": round(100 * decode / roofline, 1) if decode and alone else None,
        "clocks": measured["clocks"],
        "hit_rate": measured["hit_rate"],
    }


def file_name(found: Mapping[str, Any]) -> str:
    """Return the document's file name: the model and the date."""
    return f"{stem(found['served_model_name'])}-{re.sub(r'[^0-9TZ]', '', found['date'])}.json"


def stem(name: str) -> str:
    """Return a model's name as the first part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def newest(names: Sequence[str]) -> list[str]:
    """Return the newest file of each model, the newest one first. Other files are left out."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        if match := re.fullmatch(r"(?:.*/)?([^/]+)-(\d{8}T\d{6}Z)\.json", name):
            found[match[1]] = max(found.get(match[1], ("", "")), (match[2], name))
    return [name for _date, name in sorted(found.values(), reverse=True)]


def earlier(texts: Mapping[str, str], found: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the newest good document for the same model and distribution, {} if there is none, and notes on others.

    ``texts``: by file name. A document is good if it has no findings.
    """
    notes, known = [], []
    for name, text in texts.items():
        try:
            old = bounded_json.load(text, _MOST)
            if _same(old, found) and not old["findings"]:
                runs = [{**run, **figures(run, (*_LENGTHS, *_SPEEDS))} for run in old["runs"]]
                known.append((str(old["date"]), {**old, "runs": runs}))
        except (ValueError, LookupError, TypeError) as error:
            notes.append(f"ignored {name}, which is not a document of a benchmark: {error}")
    return max(known, key=lambda entry: entry[0], default=("", {}))[1], notes


def _same(old: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    if old["format"] != FORMAT:
        raise ValueError(f"its format is {old['format']}, expected {FORMAT}")
    return all(old[key] == found[key] for key in _SHAPE)


def figures(run: Mapping[str, Any], keys: Iterable[str]) -> dict[str, float | None]:
    """Return figures of a run. Raises TypeError for another value than a number or None."""
    found = {key: run[key] for key in keys}
    for key, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise TypeError(f"{key} is {str(value)[:40]!r}, expected a number")
    return found


def findings(found: Mapping[str, Any], old: Mapping[str, Any], tolerance: float) -> list[Problem]:
    """Return failed requests, and speeds below those of ``old`` by more than ``tolerance`` (0.1: ten percent)."""
    problems = []
    for run, before in _pairs(found, old):
        where = f"benchmark.{'-'.join(str(run[key]) for key in _LENGTHS)}"
        if run["failed"]:
            fix = "read the log of gb10-vllm.service on the head"
            problems.append(
                Problem(where, f"{run['failed']} of {run['requests']} requests failed", "an answer to each", fix)
            )
        for key, words in _SPEEDS.items():
            now, then = run[key], before.get(key)
            if now is not None and then and now < then * (1 - tolerance):
                fix = (
                    "repeat it on an idle cluster, then compare driver, clocks, arguments and network of both documents"
                )
                problems.append(
                    Problem(
                        f"{where}.{key}",
                        f"{now:.1f} {words}",
                        f"{then * (1 - tolerance):.1f} or more, after {then:.1f}",
                        fix,
                    )
                )
    return problems


def _pairs(found: Mapping[str, Any], old: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return each run with the earlier one of equal lengths and prompts, {} without one."""

    def key(run: Mapping[str, Any]) -> tuple[Any, ...]:
        # Documents of earlier releases have no other prompts.
        return (*(run[name] for name in _LENGTHS), run.get("data", RANDOM))

    known = {key(run): run for run in old.get("runs", ())}
    return [(run, known.get(key(run), {})) for run in found["runs"]]


def lines(found: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Return the document as lines of at most 120 columns, except for long names."""
    drivers = ", ".join(sorted({release for release in found["drivers"].values() if release})) or "none"
    drafts = any(run["acceptance_percent"] is not None for run in found["runs"])
    head = [
        f"model: {found['model']}, vLLM {found['vllm']}, {found['executor']}, "
        f"tensor {found['tensor']} x pipeline {found['pipeline']}, driver {drivers}",
        f"{'at once':>7} {'input':>6} {'output':>6} {'failed':>6} {'req/s':>7} {'tok/s':>8} {'change':>7} "
        f"{'TTFT ms':>9} {'p99':>9} "
        f"{'TPOT ms':>8} {'p99':>8} {'ITL ms':>7} {'hits':>5} {'MHz':>5}{' ' * 4 + 'draft' if drafts else ''}",
    ]
    rows = [f"{_row(run, before)}{_draft(run) if drafts else ''}" for run, before in _pairs(found, old)]
    if not any(run["output_tokens"] for run in found["runs"]):
        rows.append("an embedding model: tok/s counts the tokens of the texts, and TTFT is the time to the vector")
    return [
        *head,
        *rows,
        *_prompts(found),
        *_decode(found),
        *_ratios(found),
        *network.lines(found["network"]),
        _compared(found, old),
    ]


def best(found: Mapping[str, Any]) -> str:
    """Return the best speeds of a document in one sentence, "" without a run."""
    runs = found["runs"]
    if not runs:
        return ""
    most = max(runs, key=lambda run: run["tokens_per_second"])
    alone = max((run["decode_tokens_per_second"] or 0 for run in runs if run["concurrency"] == 1), default=0)
    sentence = f"{found['model']}: {most['tokens_per_second']:.1f} tokens/s with {most['concurrency']} at once"
    return f"{sentence}, {alone:.1f} for a single request" if alone else sentence


def _draft(run: Mapping[str, Any]) -> str:
    """Return the column of a draft: the accepted tokens, and the tokens of each step."""
    share, length = run["acceptance_percent"], run["acceptance_length"]
    shown = "-" if share is None else f"{share:.0f}%" if length is None else f"{share:.0f}%/{length:.1f}"
    return f" {shown:>8}"


def _prompts(found: Mapping[str, Any]) -> list[str]:
    """Return the line about prompts that are not random, [] if they are."""
    kinds = {run["data"] for run in found["runs"]}
    if kinds == {RANDOM}:
        return []
    words = "prompts: SPEED-Bench" if kinds == {SPEED_BENCH} else "prompts: natural text and code"
    if found["mode"] == SPEED_MODE and TEXT in kinds:
        words += ", in place of SPEED-Bench (benchmark_model_speed_bench)"
    return [f"{words}; input and output are the average real tokens"]


def _row(run: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    then = before.get("tokens_per_second")
    change = f"{run['tokens_per_second'] / then - 1:+.0%}" if then else "-"
    hits = "-" if run["hit_rate"] is None else f"{run['hit_rate']:.0%}"
    clock = run["clocks"].get("sm_mhz")
    wanted = run["data"] == RANDOM or run["input_mean"] is None
    tokens = [run["input_tokens"], run["output_tokens"]] if wanted else [run["input_mean"], run["output_mean"]]
    return (
        f"{run['concurrency']:>7} {tokens[0]:>6} {tokens[1]:>6} {run['failed']:>6} "
        f"{run['requests_per_second']:>7.2f} "
        f"{run['tokens_per_second']:>8.1f} {change:>7} {run['ttft_ms']['median']:>9.1f} {run['ttft_ms']['p99']:>9.1f} "
        f"{run['tpot_ms']['median']:>8.2f} {run['tpot_ms']['p99']:>8.2f} {run['itl_ms']['median']:>7.2f} {hits:>5} "
        f"{'-' if clock is None else round(clock):>5}"
    )


def _decode(found: Mapping[str, Any]) -> list[str]:
    """Return the speed of a single request, next to the memory plan's upper bound and the published figures."""
    alone = [run for run in found["runs"] if run["concurrency"] == 1 and run["decode_tokens_per_second"]]
    result = []
    for run in alone:
        bound = found["roofline_tokens_per_second"]
        share = (
            f", {run['roofline_percent']:.1f} % of {bound:.1f}, the upper bound by memory bandwidth" if bound else ""
        )
        result.append(
            f"decode with {run['input_tokens']} input tokens: {run['decode_tokens_per_second']:.1f} tokens/s{share}"
        )
    if alone and (published := found["published_tokens_per_second"]):
        low, high = published
        best = max(run["decode_tokens_per_second"] for run in alone)
        figure = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        result.append(
            f"{'warning: slower than the' if best < low else 'the'} published {figure} tokens/s (docs/models.md)"
        )
    return result


def _ratios(found: Mapping[str, Any]) -> list[str]:
    """Return the measured speeds next to those of the recipe's source, and what differs if they are lower."""
    lines: list[str] = []
    for theirs in found["measured_by_source"]:
        for run in found["runs"]:
            if run["data"] != RANDOM and all(run[key] == theirs[key] for key in _LENGTHS):
                lines += _ratio(found, run, theirs)
    if found["measured_by_source"] and found["mode"] != SPEED_MODE and not lines:
        source = found["measured_by_source"][0]["source"]
        lines.append(f"compare with {source}'s figures: -e benchmark_model_mode={SPEED_MODE}")
    return lines


def _ratio(found: Mapping[str, Any], run: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    first, source = run["ttft_ms"]["median"], theirs["source"]
    prefill = 1000 * run["input_mean"] / first if first and run["input_mean"] else 0
    speeds = {"decode": run["decode_tokens_per_second"] or 0, "prefill": prefill}
    known = {name: speed for name, speed in speeds.items() if speed and theirs[name]}
    lines = [
        f"{name}: measured {speed:.1f}, {source} {theirs[name]:.1f}, ratio {speed / theirs[name]:.2f}"
        for name, speed in known.items()
    ]
    if lines:
        lines.append(f"{source}: {theirs['dataset']}, {theirs['harness']}, {theirs['date']}")
    if any(speed < _LOW * theirs[name] for name, speed in known.items()):
        lines += _differences(found, run, theirs)
    return lines


def _differences(found: Mapping[str, Any], run: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return a line for each known difference from the source's conditions, and one for its unpublished values."""
    source = theirs["source"]
    drivers = sorted({release for release in found["drivers"].values() if release})
    ours = {
        "driver": (", ".join(drivers), theirs["driver"]),
        "vLLM": (found["vllm"], theirs["vllm"]),
        "revision of the model": (found["revision"], theirs["revision"]),
        "runtime": (found["runtime"], theirs["image"]),
    }
    lines = [
        f"differs: {name} {own or 'unknown'}, {source} {other}"
        for name, (own, other) in ours.items()
        if other not in {own, own.rpartition("@")[2], "?"}
    ]
    if run["data"] != SPEED_BENCH:
        lines.append(f"differs: prompts of this collection, {source} {theirs['dataset']}")
    clocks = run["clocks"]
    seen = [
        words.format(value)
        for words, value in (
            ("GPU clock {:.0f} MHz", clocks.get("sm_mhz")),
            ("at most {:.0f} \N{DEGREE SIGN}C", clocks.get("temperature_c")),
            ("{:.0f} % of draft tokens accepted", run["acceptance_percent"]),
        )
        if value is not None
    ]
    return [*lines, *([f"seen: {', '.join(seen)}; {source} does not publish them"] if seen else [])]


def _compared(found: Mapping[str, Any], old: Mapping[str, Any]) -> str:
    if not old:
        return "compared with: no earlier benchmark of this model and distribution"
    changes = [
        f"{key} {old.get(key)} -> {found[key]}"
        for key in ("vllm", "executor", "runtime", "drivers")
        if old.get(key) != found[key]
    ]
    return f"compared with: {old['date']}" + (f" ({', '.join(changes)})" if changes else "")
