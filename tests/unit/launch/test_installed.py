"""Comparisons of a planned service with the node's: the core, and the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import SERVICE_PROPERTIES

NAME = "gb10-vllm.service"
SERVICE = {"inputs": "abc", "enabled": True, "active": "active", "pid": 7}


@pytest.mark.parametrize(
    ("changes", "broken", "expected"),
    [
        ({}, "", (False, False)),
        ({"inputs": "old"}, "", (True, True)),
        ({}, "it does not answer", (True, True)),
        ({"active": "failed"}, "", (False, True)),
        ({"active": "inactive"}, "", (False, True)),
        ({"active": "activating"}, "", (False, False)),
        ({"enabled": False}, "", (False, True)),
    ],
    ids=["equal", "inputs", "broken", "failed", "inactive", "activating", "disabled"],
)
def test_a_service_restarts_for_other_inputs_and_starts_if_it_does_not_run(
    changes: dict[str, Any], broken: str, expected: tuple[bool, bool]
) -> None:
    found = installed.compared({**SERVICE, **changes}, "abc", broken, differs=False)
    assert (found["restart_needed"], found["start_needed"]) == expected
    assert bool(found["restart_reason"]) is expected[0] is found["drops"]
    assert not installed.compared({**SERVICE, **changes, "pid": None}, "abc", broken, differs=False)["drops"]


def test_a_missing_unit_differs(tmp_path: Path) -> None:
    program(tmp_path, "systemctl", f"printf '%s=0\\n' {' '.join(SERVICE_PROPERTIES)}")
    result = run_module("systemd_unit", {"name": NAME, "unit": {"text": "text\n", "inputs": "abc"}}, tmp_path)
    assert result["differs"] and result["restart_reason"] == "its launch inputs differ from the current plan"
