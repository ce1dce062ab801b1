"""The state of a unit that works for hours."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_work_unit

NAME = "0.33.0-0123456789ab"


@pytest.mark.parametrize(
    ("active", "sub", "mine", "others"),
    [
        ("active", "running", "running", "other"),
        ("activating", "start", "running", "other"),
        ("deactivating", "stop-sigterm", "running", "other"),
        # The run that started it ended before it took the result.
        ("active", "exited", "finished", "none"),
        ("failed", "failed", "failed", "none"),
        ("inactive", "dead", "failed", "none"),
    ],
)
def test_the_state_of_the_unit(active: str, sub: str, mine: str, others: str) -> None:
    unit = {"ActiveState": active, "SubState": sub, "Description": f"Build of vLLM {NAME}"}
    assert io_work_unit.state(unit, NAME) == mine
    for description in (f"Build of vLLM x{NAME}", f"{NAME} of vLLM", ""):
        assert io_work_unit.state({**unit, "Description": description}, NAME) == others
