# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of benchmark_runs, which documents it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import checks, io_prompts
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import plan as benchmark_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Chooses the runs on the controller. Only the benchmark's unit and SPEED-Bench's file are read on the node."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {date, seed, runs, lines}, or a failure with the reason not to measure."""
        arguments = self.arguments(
            mode={"type": "str", "choices": list(benchmark_plan.MODES), "required": True},
            data={"type": "str", "choices": list(benchmark_plan.DATA), "default": benchmark_plan.AUTO},
            speed_bench={"type": "str", "default": ""},
            concurrencies={"type": "list", "elements": "int", "required": True},
            input_tokens={"type": "list", "elements": "int", "required": True},
            output_tokens={"type": "int", "required": True},
            timeout={"type": "int", "required": True},
            busy_ok={"type": "bool", "default": False},
            api={"type": "dict", "required": True},
        )
        api, busy_ok = arguments.pop("api"), arguments.pop("busy_ok")
        unit = self.module({"name": f"{benchmark_plan.UNIT}.service"}, variables, "gb10.cluster.systemd_unit_info")
        if "service" not in unit:
            return unit
        plan = self.plan(variables)
        if reason := checks.refusal(plan, api, unit["service"]["pid"] is not None, busy_ok):
            return {"failed": True, "msg": reason}
        # Once, because equal prompts of an earlier benchmark would come from the prefix cache.
        now = datetime.now(UTC)
        settings = benchmark_plan.BenchmarkSettings(
            **arguments, seed=int(now.timestamp()), context=api.get("context") or 0
        )
        if problems := benchmark_plan.problems(plan, settings):
            return {"failed": True, "msg": "\n".join(map(str, problems))}
        if settings.speed_bench and settings.mode == benchmark_plan.SPEED_MODE:
            found = self.module({"path": benchmark_plan.speed_file(settings)}, variables, "ansible.builtin.stat")
            if "stat" not in found:
                return found
            # Without the file, other text of the same lengths replaces it.
            settings = replace(settings, speed_bench=settings.speed_bench * bool(found["stat"].get("isreg")))
        runs, program = benchmark_plan.runs(plan, settings), io_prompts.program()
        return {
            "changed": False,
            "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seed": settings.seed,
            "runs": [
                {**vars(run), "name": run.name, "command": benchmark_plan.command(plan, run, settings, program)}
                for run in runs
            ],
            "lines": benchmark_plan.lines(plan, runs),
            # The commands are longer than all other output of a run with -v.
            "_ansible_verbose_override": True,
        }
