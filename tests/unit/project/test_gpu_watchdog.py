# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the evaluation of tests/gpu/watchdog.py, without a GPU."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gpu_program import load
from repository import load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import Alarm, Engine, State

watchdog = load("watchdog")


def test_its_settings_are_the_role_s_defaults() -> None:
    defaults = load_yaml(read("roles/vllm_watchdog/defaults/main.yml"))
    assert {f"vllm_watchdog_{name}": value for name, value in watchdog.SETTINGS.items()}.items() <= defaults.items()


def seen(time: float, output: float, cache: float, running: float = 1, **facts: Any) -> State:
    return State(time, True, Engine((output, output, output, cache, running, 0), output, running), **facts)


def test_time_without_output_counts_only_while_requests_run() -> None:
    idle = [seen(time, 1, 0, running=0) for time in (0, 20, 40)]
    prefill = [seen(60 + 2 * step, 1, 0.1 * min(step, 7), stalled=step / 10) for step in range(10)]
    after = [seen(80, 2, 0.7), seen(90, 2, 0.7, witnesses=("a: b",), alarm=Alarm(90, "why"))]
    found = watchdog.summary([*idle, *prefill, *after])
    assert (found["without_output"], found["cache_changes"]) == (38, 7)
    assert (found["seconds"], found["samples"], found["stalled"], found["armed"]) == (90, 15, 0.9, True)
    assert (found["witnesses"], found["alarms"]) == (["a: b"], ["why"])


QUIET = {"armed": True, "stalled": 2.0, "without_output": 148.0, "witnesses": [], "alarms": []}
STOP = {
    "name": "rank",
    "process": "process 7 (VLLM::Worker)",
    "reason": "no step for 16 s; gpu: process 7 (VLLM::Worker) is stopped",
    "evidence": "S 5 vllm\nT 7 VLLM::Worker\n",
    "alarm_seconds": 18.0,
    "over_seconds": 2.0,
    "results": {"256 tokens": 4, "8 tokens afterwards": 1},
}
REPORT: dict[str, Any] = {
    "phases": [{**QUIET, "name": "load", "results": {"256 tokens": 9}}, {**QUIET, "name": "prefill", "results": {}}],
    "stops": [STOP],
}


def failed(what: str = "stops", number: int = 0, **facts: Any) -> list[str]:
    report = deepcopy(REPORT)
    report[what][number] |= facts
    return [check for check, holds in watchdog.checks(report).items() if not holds]


def test_what_has_to_hold() -> None:
    assert failed() == []
    assert failed(alarm_seconds=31.0) == ["rank: an alarm within 30 s"]
    assert failed(reason="no step for 120 s") == ["rank: the reason is the stopped process"]
    assert failed(evidence="T 71 other\nS 7 VLLM::Worker\n") == ["rank: the evidence shows it"]
    over = ["rank: the alarm ended and every request was answered"]
    for results in ({"8 tokens afterwards": 1, "HTTP Error 500": 1}, {"256 tokens": 4}):
        assert failed(results=results) == over


def test_what_has_to_hold_without_a_stop() -> None:
    assert failed("phases", 0, results={"256 tokens": 3, "timed out": 1}) == ["the load was answered"]
    assert failed("phases", 0, results={}) == ["the load was answered"]
    for facts in ({"armed": False}, {"witnesses": ["a"]}, {"alarms": ["a"]}):
        assert failed("phases", 0, **facts) == ["load: armed, no witness, no alarm"]
        assert failed("phases", 1, **facts) == ["prefill: armed, no witness, no alarm"]
    assert failed("phases", 1, stalled=15.0) == ["in the prefill the watchdog saw steps"]
    short = ["the prefill had no output for longer than an alarm without a witness takes"]
    assert failed("phases", 1, without_output=119.0) == short
