"""GPU, listeners, users and services as this host reports them."""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts

GB10 = "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1\n"
SUMMARY = "CUDA Version: 13.0"


@pytest.mark.parametrize(
    ("status", "calls", "reason"),
    [
        (0, 2, ""),
        (9, 1, "nvidia-smi failed with status 9: no driver"),
        (-6, 1, "nvidia-smi failed with status -6: no driver"),
    ],
)
def test_a_driver_that_fails_is_not_asked_again(status: int, calls: int, reason: str) -> None:
    asked = []

    def run(argv: Sequence[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return (status, "" if status else GB10, "no driver") if len(argv) > 1 else (0, SUMMARY, "")

    found = io_facts.gpu(run)
    assert (len(asked), found["reason"], found["cuda_version"]) == (calls, reason, None if status else "13.0")


@pytest.mark.parametrize("status", [1, -9, 255])
def test_a_command_that_fails_is_an_error_with_its_text(status: int) -> None:
    def run(_argv: Sequence[str]) -> tuple[int, str, str]:
        return status, "[]", "it failed\n"

    with pytest.raises(ValueError, match=r"^ip -json address show failed: it failed$"):
        io_facts.links(run)
    with pytest.raises(ValueError, match=r"^systemctl show gb10-vllm failed: it failed$"):
        io_facts.service(run, "gb10-vllm")


def test_logind_spares_system_users(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {
        "root": 0,
        "daemon": 1,
        "gb10": 999,
        "first": 1000,
        "last": 65533,
        "nobody": 65534,
        "beyond": 65535,
        "container": 100000,
    }
    entries = [SimpleNamespace(pw_name=name, pw_uid=number) for name, number in numbers.items()]
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    assert io_facts.login_users() == ["first", "last", "root"]


SHOWN = """LoadState=loaded
UnitFileState=enabled
ActiveState={active}
SubState=running
Result=success
MainPID={pid}
NRestarts=3
ExecMainStatus=0
InvocationID=abc
Job=0
ExecMainStartTimestampMonotonic=2500000
ActiveExitTimestampMonotonic=
Environment=A=b GB10_INPUTS=loaded
"""


@pytest.mark.parametrize(
    ("active", "pid", "inputs"),
    [("active", 1234, "running"), ("activating", 1234, "running"), ("activating", 0, "loaded"), ("failed", 0, "")],
)
def test_the_inputs_of_what_runs_or_is_about_to(
    monkeypatch: pytest.MonkeyPatch, active: str, pid: int, inputs: str
) -> None:
    monkeypatch.setattr(
        io_facts.io_file, "read", lambda path: {"/proc/1234/environ": "A=b\0GB10_INPUTS=running\0"}[path]
    )
    facts = io_facts.service(lambda _argv: (0, SHOWN.format(active=active, pid=pid), ""), "gb10-vllm")
    assert (facts["inputs"], facts["pid"], facts["restarts"]) == (inputs, pid or None, 3)
    assert (facts["started"], facts["stopped"], facts["queued"]) == (2.5, 0.0, False)
