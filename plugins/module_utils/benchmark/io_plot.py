# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw a benchmark, or the heat map of several models, with matplotlib, if it is installed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

#: The plots: (unit, the value of a run).
_PLOTS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "output tokens per second": lambda run: run["tokens_per_second"],
    "median inter-token latency, ms": lambda run: run["itl_ms"]["median"],
}
_MISSING = "plots: none, because this controller has no matplotlib"


def draw(src: str, dest: str) -> str:
    """Write the plots of a document as SVG. Returns a line with the path, or with the reason why there are none.

    Raises OSError.
    """
    document = json.loads(Path(src).read_text(encoding="utf-8"))
    if "rows" in document:
        return _heat_map(document, dest)
    series = _series(document["runs"])
    if not any(len(runs) > 1 for runs in series.values()):
        return "plots: none, because no prompt length has runs with several concurrencies"
    figure = _figure(11, 4.5)
    if figure is None:
        return _MISSING
    figure.suptitle(f"{document['served_model_name']}, vLLM {document['vllm']}, {document['date']}")
    for axes, (unit, value) in zip(figure.subplots(1, len(_PLOTS)), _PLOTS.items(), strict=True):
        for name, runs in series.items():
            axes.plot([run["concurrency"] for run in runs], [value(run) for run in runs], marker="o", label=name)
        axes.set_xlabel("requests at the same time")
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)
        axes.legend()
    figure.savefig(dest, format="svg")
    return f"plots: {dest}"


def _figure(width: float, height: float) -> Any:
    """Return an empty figure of this size in inches, None without matplotlib."""
    try:
        return import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    except ImportError:
        return None


def _heat_map(record: Mapping[str, Any], dest: str) -> str:
    """Write the throughput of each model (row) in each run (column); see matrix.py for the record."""
    rows = [row for row in record["rows"] if row["runs"]]
    names = list(dict.fromkeys(_run_name(run) for row in rows for run in row["runs"]))
    if not names:
        return "plots: none, because no model has a result"
    figure = _figure(3 + 1.6 * len(names), 2 + 0.5 * len(rows))
    if figure is None:
        return _MISSING
    speeds = [{_run_name(run): run["tokens_per_second"] for run in row["runs"]} for row in rows]
    cells = [[speed.get(name, float("nan")) for name in names] for speed in speeds]
    axes = figure.subplots()
    image = axes.imshow(cells, aspect="auto")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            text = "-" if math.isnan(value) else f"{value:.0f}"
            axes.text(x, y, text, ha="center", va="center", color="white")
    axes.set_xlabel("requests at the same time: input + output tokens")
    figure.colorbar(image, label="output tokens per second")
    figure.suptitle(f"models, {record['date']}")
    figure.savefig(dest, format="svg")
    return f"plots: {dest}"


def _run_name(run: Mapping[str, Any]) -> str:
    return f"{run['concurrency']}: {run['input_tokens']} + {run['output_tokens']}"


def _series(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the runs of equal lengths by their name, ordered by concurrency."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: (run["input_tokens"], run["output_tokens"], run["concurrency"])):
        found.setdefault(f"{run['input_tokens']} + {run['output_tokens']} tokens", []).append(run)
    return found
