# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw a benchmark with matplotlib, if it is installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

#: The plots: (unit, the value of a run).
_PLOTS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "output tokens per second": lambda run: run["tokens_per_second"],
    "median inter-token latency, ms": lambda run: run["itl_ms"]["median"],
}


def draw(src: str, dest: str) -> str:
    """Write the plots of a document as SVG. Returns a line with the path, or with the reason why there are none.

    Raises OSError.
    """
    document = json.loads(Path(src).read_text(encoding="utf-8"))
    series = _series(document["runs"])
    if not any(len(runs) > 1 for runs in series.values()):
        return "plots: none, because no prompt length has runs with several concurrencies"
    try:
        figure = import_module("matplotlib.figure").Figure(figsize=(11, 4.5), layout="constrained")
    except ImportError:
        return "plots: none, because this controller has no matplotlib"
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


def _series(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the runs of equal lengths by their name, ordered by concurrency."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: (run["input_tokens"], run["output_tokens"], run["concurrency"])):
        found.setdefault(f"{run['input_tokens']} + {run['output_tokens']} tokens", []).append(run)
    return found
