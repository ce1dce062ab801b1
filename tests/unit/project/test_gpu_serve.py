# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the evaluation of tests/gpu/serve.py, without a GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from gpu_program import load


def served(name: str, rates: list[float], *selected: str, **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "failure": "",
        "recited": 2,
        "rates": rates,
        "selected": list(selected),
        "mapped": [],
        "problems": [],
        **facts,
    }


def failed(*cases: dict[str, Any], **facts: Any) -> list[str]:
    report = {"cases": list(cases), "nodes": 1, "passages": 2, "nccl": {}, **facts}
    return [check for check, holds in serve.checks(report).items() if not holds]


serve = load("serve")
CUTLASS = "Selected CutlassFp8BlockScaledMMKernel for Fp8LinearMethod"
TRITON = "Selected TritonFp8BlockScaledMMKernel for Fp8LinearMethod"


def test_what_has_to_hold() -> None:
    graphs, eager = served("graphs", [700.0, 710.0, 90.0], CUTLASS), served("eager", [160.0, 170.0, 165.0], CUTLASS)
    assert failed(graphs, eager, served("graphs, our flags", [700.0], TRITON)) == []
    assert failed(served("graphs", [150.0]), eager) == ["graphs decode faster than eager"]
    assert failed(graphs | {"recited": 1}) == ["every token of every passage is right"]
    assert failed(graphs | {"failure": "ended"}) == ["every plan comes up and answers"]
    wrong = "with our flags no linear layer uses CUTLASS or FlashInfer"
    assert failed(served("graphs, our flags", [700.0], CUTLASS)) == [wrong]
    assert failed(served("graphs, our flags", [700.0])) == [wrong]


def test_every_host_must_have_our_nccl() -> None:
    ours = {"nodes": 2, "nccl": {"name": "2.29.7"}}
    assert failed(served("ray", [1.0], mapped=[{}, {}]), **ours) == []
    for wrong in ({"mapped": [{}]}, {"mapped": [{}, {}], "problems": ["another"]}):
        assert failed(served("ray", [1.0], **wrong), **ours) == ["ranks on every host map only our NCCL"]


def test_what_the_log_says_is_found(tmp_path: Path) -> None:
    log = (
        f"(Worker pid=9) INFO 11-21 19:20:04 [fp8.py:594] {TRITON}\n(Worker) Using TRITON Fp8 MoE backend out "
        "of potential backends: ['TRITON']\nUsing FLASH_ATTN attention backend out of\nINFO Graph capturing "
        "finished in 7 secs, took 0.2 GiB\n"
    )
    (tmp_path / "log").write_text(log, encoding="utf-8")
    assert serve.selected([tmp_path / "log"] * 2) == [
        TRITON,
        "Using TRITON Fp8 MoE backend",
        "Using FLASH_ATTN attention backend",
        "Graph capturing finished in 7 secs",
    ]


def test_processes_below_one() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 30 & wait"]) as shell:
        while len(found := serve.below(shell.pid)) < 2:
            pass
        assert found[0] == shell.pid
        for pid in reversed(found):
            os.kill(pid, 9)
    assert serve.below(shell.pid) == []


def test_a_report_is_tables_of_its_rows_and_its_checks() -> None:
    report = {
        "gpu": "NVIDIA X",
        "cases": [{"name": "one", "rates": [1.0, 3.0, 2.0], "log": "a\nb"}, {"name": "two", "recited": [True, False]}],
        "times": {"new": {"seconds": 1.25}},
        "checks": {"it holds": True, "it does not": False},
    }
    lines = load("adhoc").section("A title", report).splitlines()
    assert lines[0] == "## A title" and lines[4:] == [
        "- gpu: NVIDIA X",
        "",
        "| name | rates | recited |",
        "|---|---|---|",
        "| one | 2 (1 to 3) |  |",
        "| two |  | 1 of 2 |",
        "",
        "|  | seconds |",
        "|---|---|",
        "| new | 1.25 |",
        "",
        "- yes: it holds",
        "- **no**: it does not",
    ]
