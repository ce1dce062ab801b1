"""Why a server ended during requests: only an error of this time, and never in place of the first one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.health import io_end

UNIT = "gb10-vllm.service"
KILLED = f"{UNIT}: A process of this unit has been killed by the OOM killer."
LOG = [
    (10.0, f"Starting {UNIT} - vLLM on the GB10 cluster..."),
    (50.0, "INFO:     Application startup complete."),
    (90.0, "(EngineCore pid=7) ERROR 11-21 00:12:38 [core.py:1512] RuntimeError: out of luck"),
    (91.0, KILLED),
]


@pytest.mark.parametrize(
    ("log", "began", "expected"),
    [
        (LOG, 60.0, f" The log of {UNIT} since then: RuntimeError: out of luck (unknown cause"),
        (LOG, 92.0, ""),
        (LOG[:2], 60.0, ""),
        ([], 60.0, ""),
    ],
    ids=["an end", "an earlier one", "it runs", "no log"],
)
def test_the_cause_is_that_of_this_time(log: list[tuple[float, str]], began: float, expected: str) -> None:
    shown = "".join(
        json.dumps({"__MONOTONIC_TIMESTAMP": f"{when * 1e6:.0f}", "MESSAGE": text}) + "\n" for when, text in log
    )
    asked = list[str]()

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.extend(argv)
        return 0, shown, ""

    found = io_end.since(run, UNIT, began)
    assert found.startswith(expected) and bool(found) == bool(expected) and f"--unit={UNIT}" in asked


def test_a_model_that_rests_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rests").touch()
    monkeypatch.setattr(io_end, "paths", SimpleNamespace(RESTS=str(tmp_path / "rests")))
    found = io_end.since(lambda _argv: (0, "", ""), UNIT, 0.0)
    assert found == " The model rests. Fix: run site.yml, which starts it, then repeat this playbook."


def test_an_unreadable_log_is_named() -> None:
    found = io_end.since(lambda _argv: (1, "", "no permission\n"), UNIT, 0.0)
    assert found.startswith(f" The log of {UNIT} is unknown: journalctl ") and found.endswith("no permission")
