"""Nothing that running ranks use is changed without permission."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import decide
from typed_plans import fact

GIVEN = {"subject": "NCCL", "changes": ["/a.so", "/b.so"]}


def asked(pid: int | None, allowed: bool) -> dict[str, Any]:
    """Return the step's result on a node whose ranks have this process."""
    plan = fact({"allow_restart": allowed, "ranks_unit": "gb10-vllm.service"})
    result, calls = decide("restart_permission", GIVEN, plan, result={"service": {"pid": pid}})
    assert calls == [{"name": "gb10-vllm.service"}]
    return result


@pytest.mark.parametrize(("pid", "allowed"), [(None, False), (None, True), (7, True)])
def test_a_permitted_change_names_running_ranks(pid: int | None, allowed: bool) -> None:
    assert asked(pid, allowed) == {"changed": False, "running": pid is not None}


def test_a_change_under_running_ranks_is_refused() -> None:
    found = asked(7, allowed=False)
    assert found["failed"] and "NCCL of spark1 must be changed while its ranks run: /a.so; /b.so." in found["msg"]
    assert "gb10_allow_restart: true" in found["msg"]
