# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the runs of a benchmark for the served model.

Chooses the runs for the fact ``gb10_plan``, each with the command for ``vllm_benchmark``.
Fails while a benchmark runs, if the planned model does not answer, if other clients use it, and for settings that the
server cannot serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import checks, io_prompts
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import plan as benchmark_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``mode``: The runs, as in ``benchmark_model_mode`` of the role ``benchmark_model#role``.
    ``data``: The prompts, as in ``benchmark_model_data`` of the role ``benchmark_model#role``.
    ``speed_bench``: The folder on the head with SPEED-Bench's file ``throughput_8k.jsonl``.
    ``concurrencies``: The numbers of requests at the same time in a sweep.
    ``input_tokens``: The lengths of the prompts in a sweep, in tokens.
    ``output_tokens``: The length of each answer in a sweep, in tokens.
    ``timeout``: Maximum seconds for each run.
    ``busy_ok``: Whether to measure while other clients use the model.
    ``api``: ``cluster_status_info#module:api`` of the head.
    """

    mode: str = field(metadata={"choices": list(benchmark_plan.MODES)})
    data: str = field(default=benchmark_plan.AUTO, metadata={"choices": list(benchmark_plan.DATA)})
    speed_bench: str = ""
    concurrencies: Sequence[int]
    input_tokens: Sequence[int]
    output_tokens: int
    timeout: int
    busy_ok: bool = False
    api: Mapping[str, Any]


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {date, seed, runs, lines}, or a failure with the reason not to measure."""
    settings = asdict(given)
    api, busy_ok = settings.pop("api"), settings.pop("busy_ok")
    unit = step.module({"name": f"{benchmark_plan.UNIT}.service"}, variables, "gb10.cluster.systemd_unit")
    if "service" not in unit:
        return unit
    plan = step.plan(variables)
    if reason := checks.refusal(plan, api, unit["service"]["pid"] is not None, busy_ok):
        return {"failed": True, "msg": reason}
    # Once, because equal prompts of an earlier benchmark would come from the prefix cache.
    now = datetime.now(UTC)
    chosen = benchmark_plan.BenchmarkSettings(**settings, seed=int(now.timestamp()), context=api.get("context") or 0)
    if problems := benchmark_plan.problems(plan, chosen):
        return {"failed": True, "msg": "\n".join(map(str, problems))}
    if chosen.speed_bench and chosen.mode == benchmark_plan.SPEED_MODE:
        found = step.module({"path": benchmark_plan.speed_file(chosen)}, variables, "ansible.builtin.stat")
        if "stat" not in found:
            return found
        # Without the file, other text of the same lengths replaces it.
        chosen = replace(chosen, speed_bench=chosen.speed_bench * bool(found["stat"].get("isreg")))
    runs, program = benchmark_plan.runs(plan, chosen), io_prompts.program()
    return {
        "changed": False,
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seed": chosen.seed,
        "runs": [
            {**vars(run), "name": run.name, "command": benchmark_plan.command(plan, run, chosen, program)}
            for run in runs
        ],
        "lines": benchmark_plan.lines(plan, runs),
        # The commands are longer than all other output of a run with -v.
        "_ansible_verbose_override": True,
    }
