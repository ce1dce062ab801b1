"""The step vllm_wait with scripted answers of vllm_info and a fake clock."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import vllm_wait

URL, UNIT = "http://127.0.0.1:8000", "gb10-vllm.service"
TLS = {"server_name": "spark.example.com", "ca_file": "/etc/gb10/tls/ca.crt"}
HINT = f" Full log: journalctl -u {UNIT}"
Answer = dict[str, Any]


def info(progress: str = "", healthy: bool = False, cause: str = "", untrusted: str = "", **service: Any) -> Answer:
    """Return an answer of vllm_info."""
    running = {"active": "active", "sub": "running", "queued": False, "restarts": 0, "invocation": "one", "status": 1}
    return {
        "healthy": healthy,
        "untrusted": untrusted,
        "progress": progress,
        "cause": cause,
        "ready_after": 41.5 if healthy else None,
        "service": {**running, **service},
    }


class Wait:
    """A run of the action on spark1, whose clock only its pauses advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[Answer], **arguments: Any) -> None:
        self.answers, self.now = list(answers), 0.0
        self.asked, self.shown = list[Answer](), list[str]()
        step = object.__new__(Decision)
        given = vllm_wait.Inputs(**{"name": UNIT, "url": URL, "timeout": 600, "restarts": 0, **TLS, **arguments})
        monkeypatch.setattr(vllm_wait, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))
        monkeypatch.setattr(vllm_wait, "Display", lambda: SimpleNamespace(display=self.shown.append))
        monkeypatch.setattr(step, "_execute_module", self._answer, raising=False)
        self.result = vllm_wait.run(step, given, {"inventory_hostname": "spark1"})

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _answer(self, module_name: str, module_args: Answer, task_vars: Mapping[str, Any]) -> Answer:
        assert (task_vars["inventory_hostname"], module_name) == ("spark1", "gb10.cluster.vllm_info")
        self.asked.append(module_args)
        if module_args["invocation"]:
            return info(cause=f"the log of {module_args['invocation']}")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


HEALTHY = info(healthy=True)
STARTS = info("engine starts")
TWO, THREE = info(restarts=1, invocation="two"), info(restarts=2, invocation="three")
#: Answers, permitted restarts, seconds of the wait, and the cause of a failure.
CASES: dict[str, tuple[list[Answer], int, int, str]] = {
    "healthy at once": ([HEALTHY], 0, 0, ""),
    "an old server that is being stopped": ([info(healthy=True, active="deactivating"), STARTS, HEALTHY], 0, 4, ""),
    "an old server that is about to be stopped": ([info(healthy=True, queued=True), STARTS, HEALTHY], 0, 4, ""),
    "a start that has yet to begin": ([info(active="inactive", queued=True), STARTS, HEALTHY], 0, 4, ""),
    "failed": ([STARTS, info(active="failed", cause="ValueError: bad")], 5, 2, "ValueError: bad"),
    "inactive": ([STARTS, info(active="inactive", cause="ValueError: bad")], 5, 2, "ValueError: bad"),
    "a log without a cause": (
        [info(active="failed", status=137)],
        0,
        0,
        "its log has no error; it exited with status 137",
    ),
    "the cause is that of the start that failed": ([STARTS, TWO], 0, 2, "the log of one"),
    "a restart that has not begun": (
        [info(), info(restarts=1, cause="ValueError: bad", active="activating", sub="auto-restart")],
        0,
        2,
        "ValueError: bad",
    ),
    "a forgiven restart": ([info(), TWO, {**TWO, "healthy": True, "ready_after": 41.5}], 1, 4, ""),
    "a failure after a forgiven restart": ([info(), TWO, THREE], 1, 4, "the log of two"),
    "restarts of the past": ([info(restarts=7), info(restarts=7), info(healthy=True, restarts=7)], 0, 4, ""),
    "a counter that began anew": (
        [info(restarts=7), info(restarts=0, invocation="two"), info(restarts=1, invocation="three")],
        0,
        4,
        "the log of two",
    ),
}


@pytest.mark.parametrize(("answers", "restarts", "seconds", "cause"), CASES.values(), ids=CASES)
def test_the_wait_ends_with_the_server_or_the_cause(
    monkeypatch: pytest.MonkeyPatch, answers: list[Answer], restarts: int, seconds: int, cause: str
) -> None:
    wait = Wait(monkeypatch, answers, restarts=restarts)
    failure = {"failed": True, "msg": f"{UNIT} failed to start: {cause}.{HINT}", "cause": cause}
    assert wait.result == (failure if cause else {**answers[-1], "changed": False})
    assert wait.now == seconds
    assert all(TLS.items() <= asked.items() for asked in wait.asked)


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        (
            [STARTS, STARTS, info("weights: 50%"), info("weights: 100%"), HEALTHY],
            ["   0 s  engine starts", "   4 s  weights: 50%", "   6 s  weights: 100%"],
        ),
        ([info("weights: 50%")] * 40 + [HEALTHY], [f"{seconds:4} s  weights: 50%" for seconds in (0, 32, 64)]),
        ([info(active="activating", sub="start-pre"), HEALTHY], ["   0 s  start-pre"]),
    ],
    ids=["each step once", "a silent step again", "systemd's word before the first step"],
)
def test_steps_are_shown(monkeypatch: pytest.MonkeyPatch, answers: list[Answer], shown: list[str]) -> None:
    assert Wait(monkeypatch, answers).shown == [f"  spark1: {line}" for line in shown]


@pytest.mark.parametrize(("step", "told"), [("weights: 50%", "weights: 50%"), ("", "none")])
def test_a_timeout_has_the_last_step(monkeypatch: pytest.MonkeyPatch, step: str, told: str) -> None:
    result = Wait(monkeypatch, [info(step)], timeout=9).result
    assert result["failed"] and result["msg"].startswith(f"not healthy after 10 s; last step: {told}; cause: ")
    assert result["msg"].endswith(f"docs/troubleshooting.md#start-timeout.{HINT}")


def test_a_module_that_fails_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"failed": True, "msg": "systemctl show failed"}
    assert Wait(monkeypatch, [failed]).result == failed


def test_a_server_whose_certificate_is_another_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    error = "certificate verify failed"
    wait = Wait(monkeypatch, [info(untrusted=error, queued=True), STARTS, info(untrusted=f"{error}: unknown CA")])
    assert (wait.result["failed"], wait.now) == (True, 4), "a stopping server does not count"
    refused = f"{URL} answers, but its TLS verification failed: {error}: unknown CA; cause: "
    assert wait.result["msg"].startswith(refused)
    assert wait.result["msg"].endswith("docs/troubleshooting.md#tls-untrusted")
