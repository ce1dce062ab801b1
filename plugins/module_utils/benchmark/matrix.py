# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of several models, one after the other: the models, the record of a run, and its table.

A candidate is {name, model, key, minutes, problem}. ``key`` identifies everything that a result depends on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import BenchmarkSettings, runs, seconds
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.report import figures
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.systemd import digest
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

FORMAT = 1
#: Most characters of a record.
_MOST = 4 * 1024**2
#: Estimates: seconds of a start without its weights, bytes of memory that a node fills in a second, and seconds of a
#: run whose speed is unknown. docs/benchmarks.md has measured starts.
_START, _FILL, _RUN = 180, 5e8, 60
#: The columns of the table: title, width, value of a run.
_COLUMNS: Sequence[tuple[str, int, str]] = (
    ("at once", 7, "concurrency"),
    ("input", 6, "input_tokens"),
    ("output", 6, "output_tokens"),
    ("tok/s", 8, "tokens_per_second"),
    ("decode", 7, "decode_tokens_per_second"),
    ("prefill", 8, "prefill_tokens_per_second"),
    ("TTFT ms", 9, "ttft_ms"),
    ("roofline %", 10, "roofline_percent"),
)


def folders(user_models: Mapping[str, Any], root: str) -> dict[str, str]:
    """Return {name: folder on the nodes} of the models in the catalog and in ``user_models``, which are valid.

    ``root`` is gb10_install_dir, which has the store.
    """
    known = catalog.known(user_models).values()
    found = {
        each.name: each.path or (each.hub and model_store_plan.folder(root, each.hub, each.revision)) for each in known
    }
    return {name: folder for name, folder in found.items() if folder}


def candidate(plan: Plan, name: str, settings: BenchmarkSettings, problem: str = "") -> dict[str, Any]:
    """Return the candidate of a model with its plan. ``problem``: why it has none."""
    if problem:
        return {"name": name, "model": "", "key": "", "minutes": 0, "problem": problem}
    facts = plan.facts()
    inputs = {key: facts[key] for key in ("model", "stack", "runtime", "executor")}
    inputs |= {key: facts[key] for key in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")}
    given = [len(plan.nodes), facts["store"], plan.serve.args, plan.serve.user_args]
    # The seed differs in each run.
    key = digest([inputs, given, vars(replace(settings, seed=0))])
    load = _START + max(plan.serve.needs.values(), default=0) / _FILL
    spent = load + sum(seconds(plan, run) or _RUN for run in runs(plan, settings))
    return {"name": name, "model": plan.model, "key": key, "minutes": round(spent / 60), "problem": ""}


def problem(failures: Mapping[str, Mapping[str, Any]], part: str) -> str:
    """Return why a part of the run failed, "" if it did not. ``failures``: the last {part, reason} of each node."""
    ours = [str(each.get("reason") or "") for each in failures.values() if each.get("part") == part]
    return "; ".join(dict.fromkeys(filter(None, ours))) or ("no reason given" if ours else "")


def refusal(candidates: Sequence[Mapping[str, Any]], chosen: bool) -> str:
    """Return why nothing can be measured, "" if it can. ``chosen``: whether the user named the models."""
    refused = [each for each in candidates if each["problem"]]
    if refused and chosen:
        return "\n".join(f"{each['name']}: {each['problem']}" for each in refused)
    if len(refused) < len(candidates):
        return ""
    return (
        "No model to measure. Expected: benchmark_all_models, or a complete copy of a model that this cluster can "
        "serve. Fix: set benchmark_all_models."
    )


def start(
    served: str, date: str, chosen: Sequence[str], known: Mapping[str, str], copies: Sequence[str]
) -> dict[str, Any]:
    """Return the state of a run before its models are planned: those that the user chose, else those with a copy.

    ``known``: from folders(). ``copies``: the folders of complete copies.
    """
    models = list(dict.fromkeys(chosen or (name for name, folder in known.items() if folder in copies)))
    return {"served": served, "date": date, "chosen": bool(chosen), "models": models, "candidates": [], "left_out": []}


def planned(state: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the candidates of a state with another one, and the lines about stored models without a plan."""
    candidates = [*state["candidates"], more]
    refused = [each["name"] for each in candidates if each["problem"] and not state["chosen"]]
    left_out = [f"{name}: left out, because the planner refuses it" for name in refused]
    return {"candidates": candidates, "left_out": left_out}


def begun(state: Mapping[str, Any], text: str, restart: bool) -> dict[str, Any]:
    """Return {record, due, lines} of a state whose models are planned.

    The record is {format, date, finished, rows}, with the results of an interrupted run. ``text`` is the earlier
    record, "" without one. Results of a finished run, of other inputs and failures are dropped.
    """
    candidates = {each["key"]: each for each in state["candidates"] if not each["problem"]}
    earlier = {} if restart or not text else _loaded(text)
    kept = [row for row in earlier.get("rows", ()) if row["key"] in candidates and not row["problem"]]
    date = earlier["date"] if kept else state["date"]
    done = {row["key"] for row in kept}
    due = [each for key, each in candidates.items() if key not in done]
    minutes = sum(each["minutes"] for each in due)
    lines = [
        f"{len(due)} models, about {minutes} minutes; {state['served']} stops, and serves again at the end",
        *(f"{each['name']}: about {each['minutes']} minutes" for each in due),
        *(f"{row['name']}: has a result of the interrupted run of {date}" for row in kept),
    ]
    record = {"format": FORMAT, "date": date, "finished": False, "rows": kept}
    return {"record": record, "due": due, "lines": lines}


def finished(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return {record, lines, failed_models} at the end of a run."""
    failed = [row["name"] for row in record["rows"] if row["problem"]]
    return {"record": {**record, "finished": True}, "lines": lines(record), "failed_models": failed}


def not_back(served: str, reason: str) -> str:
    """Return why the run ends with an error: the model before the benchmarks does not serve again."""
    return (
        f"{served} does not serve again: {reason}. Expected: the model that served before the benchmarks. "
        "Fix: run site.yml."
    )


def _loaded(text: str) -> Mapping[str, Any]:
    """Return an unfinished record, {} for any other text: it is a file that users may edit."""
    try:
        found = bounded_json.load(text, _MOST)
        rows = [_checked(row) for row in found["rows"]]
        return {} if found["finished"] or found["format"] != FORMAT else {"date": str(found["date"]), "rows": rows}
    except (ValueError, LookupError, TypeError):
        return {}


def _checked(row: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: str(row[key]) for key in ("name", "model", "key", "problem", "file")}
    return {**texts, "runs": [_shown(run) for run in row["runs"]]}


def added(
    record: Mapping[str, Any], of: Mapping[str, Any], result: Mapping[str, Any], file: str, problem: str
) -> dict[str, Any]:
    """Return the record with a candidate's row. ``result``: the document of its benchmark, {} if there is none.

    ``problem`` is why the model or its benchmark failed, "" if both were successful.
    """
    ours = result.get("model") == of["model"]
    row = {
        **{key: of[key] for key in ("name", "model", "key")},
        "problem": " ".join(problem.split()),
        "file": file if ours else "",
        "runs": [_shown({**each, **_first(each)}) for each in result["runs"]] if ours else [],
    }
    return {**record, "rows": [*record["rows"], row]}


def _first(run: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the median time to the first token, and the speed of reading a prompt alone."""
    first = run["ttft_ms"]["median"]
    read = run.get("input_mean") or run["input_tokens"]
    prefill = round(1000 * read / first, 1) if run["concurrency"] == 1 and first else None
    return {"ttft_ms": first, "prefill_tokens_per_second": prefill}


def _shown(run: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures of a run in the table. Raises TypeError for another value than a number or None."""
    return figures(run, [key for _title, _width, key in _COLUMNS])


def lines(record: Mapping[str, Any]) -> list[str]:
    """Return the table of the record, and a line for each failed model."""
    rows = record["rows"]
    name = max([5, *(len(row["name"]) for row in rows)])
    head = " ".join(["model".ljust(name), *(title.rjust(width) for title, width, _key in _COLUMNS)])
    table = [f"{row['name']:{name}} {_figures(run)}" for row in rows for run in row["runs"]]
    failed = [f"{row['name']}: {row['problem']}" for row in rows if row["problem"]]
    return [*([head, *table] if table else ["no result"]), *failed]


def _figures(run: Mapping[str, Any]) -> str:
    return " ".join(_text(run[key]).rjust(width) for _title, width, key in _COLUMNS)


def _text(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.1f}"
