# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare golden answers on a real GPU, as shipped and with wrong kernels, and measure a benchmark.

    python tests/gpu/golden.py --runtime PYTHON --folder FOLDER

PYTHON is that of an environment with a CUDA build of vLLM. The model is that of moe.py with one FP8 scale for each
output. It was trained to recite passages. Each server starts with --enforce-eager. The first one is recorded, the
second one is compared without a fault, and each further one with a product of vLLM's FP8 kernel times a factor: a wrong
scale. FOLDER then contains report.json, report.md, the record and logs. The exit
status is 1 if a check fails.

Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import adhoc
from adhoc import ROOT, URL, conclude, gpus, parsed, parser, server, trained

sys.path.insert(0, str(ROOT / "tests/support"))

from typed_plans import typed  # type: ignore[import-not-found]

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import io_run, plan
from ansible_collections.gb10.cluster.plugins.module_utils.golden import io_golden, parse, report
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Bounds, Identity
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server, api_key

#: The defaults of the role golden.
BOUNDS = Bounds(tie=0.5, distance=0.25, perplexity_change=0.1, perplexity=100.0, strict=False)
#: vLLM loads this plugin in each of its processes.
PLUGIN = """
import os
def register():
    from vllm import _custom_ops as ops
    kernel, factor = ops.cutlass_scaled_mm, float(os.environ["GB10_FAULT"])
    ops.cutlass_scaled_mm = lambda *args, **options: kernel(*args, **options) * factor
"""
SETTINGS = plan.BenchmarkSettings("", [], [], 0, 1, 600)
RUNS = (plan.Run(1, 512, 256, 4), plan.Run(16, 512, 256, 64))


def main() -> None:
    given = parser(__doc__, "for the model, the record, logs and reports")
    given.add_argument("--runtime", required=True, help="the Python of an environment with a CUDA build of vLLM")
    given.add_argument(
        "--factors",
        nargs="*",
        type=float,
        default=[1.1, 1.5, 0.5],
        help="planted faults: a wrong scale of FP8 products",
    )
    options = parsed(given)
    conclude(
        options.folder, "Golden answers and a benchmark", measure(options.runtime, options.folder, options.factors)
    )


def measure(python: str, folder: Path, factors: Sequence[float]) -> dict[str, Any]:
    """Return the report: versions, cases and checks."""
    model = trained(python, folder) / "channel"
    plugin = folder / "plugin"
    (plugin / "gb10_fault-1.dist-info").mkdir(parents=True, exist_ok=True)
    (plugin / "gb10_fault.py").write_text(PLUGIN, encoding="utf-8")
    (plugin / "gb10_fault-1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: gb10-fault\nVersion: 1\n", encoding="utf-8"
    )
    (plugin / "gb10_fault-1.dist-info/entry_points.txt").write_text(
        "[vllm.general_plugins]\nfault = gb10_fault:register\n", encoding="utf-8"
    )
    identity, content = Identity(str(model), "", "compressed-tensors"), None
    cases: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for name, factor in (
        ("recorded", 0.0),
        ("unchanged", 0.0),
        *((f"FP8 products times {factor}", factor) for factor in factors),
    ):
        # The plugin multiplies FP8 products.
        paths = [str(plugin), *filter(None, [os.environ.get("PYTHONPATH")])]
        fault = {"PYTHONPATH": os.pathsep.join(paths), "GB10_FAULT": str(factor)} if factor else {}
        arguments = ["--max-model-len=2048", "--gpu-memory-utilization=0.3"]
        with server(python, model, arguments, fault, folder / f"{name.replace(' ', '-')}.log") as (_process, seconds):
            asked = time.monotonic()
            # The first request compiles kernels for minutes.
            answers = io_golden.run(Server(URL), "moe", str(model), False, parse.prompts(""), 400, api_key(""))
            took = time.monotonic() - asked
            if name == "recorded":
                runs = [benchmark(python, model, run) for run in RUNS]
        verdict = report.result(
            answers, content, BOUNDS, identity, "2026-01-01", "record.json", renew=name == "recorded"
        )
        content = content or verdict["record"]
        lines = [line for line in verdict["lines"] if not line.startswith("  ")]
        cases.append(
            {
                "name": name,
                "start_seconds": seconds,
                "answer_seconds": took,
                "perplexity": answers["perplexity"],
                "lines": lines,
                "problem": verdict["problem"],
                "vllm": answers["vllm"],
            }
        )
        (folder / "report.json").write_text(json.dumps(cases, indent=1), encoding="utf-8")
    checks = {
        "the record was written": bool(content),
        "unchanged answers pass": not cases[1]["problem"],
        **{f"{case['name']} fails": bool(case["problem"]) for case in cases[2:]},
        "each benchmark has a speed": all(run["tokens_per_second"] > 0 for run in runs),
    }
    return {"gpu": gpus()[0], "cases": cases, "benchmark": runs, "checks": checks}


def benchmark(python: str, model: Path, run: plan.Run) -> dict[str, Any]:
    """Return a run of vLLM's client as the role benchmark_model measures it, without systemd-run."""
    given = {
        "served_model_name": "moe",
        "model": str(model),
        "api_tls": {},
        "serve": {"args": [], "user_args": []},
        "runtime": {"kind": "native", "path": "."},
    }
    _vllm, *client = plan.client(typed(given), run, SETTINGS, "")
    script = 'folder=$(mktemp -d) && "$@" --result-dir=$folder >&2 && cat $folder/result.json'
    command = ["sh", "-c", script, "sh", python, "-m", "vllm.entrypoints.cli.main", *client]
    measured = io_run.measure(command, run, Server(URL), api_key(""), adhoc.run)
    return {"name": run.name, **measured["result"], **measured["clocks"]}


if __name__ == "__main__":
    main()
