"""The state of a unit that works for hours."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_work_unit
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError

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


def test_a_unit_starts_in_place_of_an_earlier_one_and_its_state_is_read() -> None:
    answers = {"systemd-run": (0, "", "")}
    ran: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        ran.append(argv)
        return answers.get(argv[0], (0, f"ActiveState=failed\nResult=exit-code\nDescription=a=b {NAME}\nno line\n", ""))

    io_work_unit.start(run, "u.service", ("systemd-run", "x"))
    stopped = [["systemctl", "stop", "u.service"], ["systemctl", "reset-failed", "u.service"]]
    assert ran == [*stopped, ["systemd-run", "x"]]
    assert io_work_unit.read(run, "u.service", NAME) == io_work_unit.Work("failed", "exit-code", f"a=b {NAME}")
    assert ran[-1] == ["systemctl", "show", "u.service", "--property=ActiveState,SubState,Result,Description"]
    for status in (1, -9):
        answers["systemd-run"] = (status, "", " no bus \n")
        with pytest.raises(ProblemsError, match=r"systemd-run failed: no bus\..* see journalctl -u u\.service"):
            io_work_unit.start(run, "u.service", ("systemd-run", "x"))
