"""The action vllm_wait with scripted answers of vllm_info and a fake clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.action import vllm_wait

TLS = {"server_name": "spark.example.com", "ca_file": "/etc/gb10/tls/ca.crt"}


def info(
    progress: str = "", healthy: bool = False, cause: str = "", untrusted: str = "", **service: Any
) -> dict[str, Any]:
    """Return an answer of vllm_info."""
    return {
        "healthy": healthy,
        "untrusted": untrusted,
        "progress": progress,
        "cause": cause,
        "ready_after": 41.5 if healthy else None,
        "service": {
            "active": "active",
            "sub": "running",
            "queued": False,
            "restarts": 0,
            "invocation": "one",
            "status": 1,
            **service,
        },
    }


class Clock:
    """Fake module time: only sleep() advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return the seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds


class Shown(list[str]):
    """Fake Display that collects the displayed lines."""

    def __call__(self) -> Shown:
        return self

    def display(self, text: str) -> None:
        """Record a line."""
        self.append(text)


class Wait:
    """One run of the action on spark1."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        answers: list[dict[str, Any]],
        earlier: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.answers, self.earlier = list(answers), dict(earlier or {})
        self.asked: list[dict[str, Any]] = []
        self.clock, self.shown = Clock(), Shown()
        self.action = object.__new__(vllm_wait.ActionModule)
        monkeypatch.setattr(vllm_wait, "time", self.clock)
        monkeypatch.setattr(vllm_wait, "Display", self.shown)
        monkeypatch.setattr(vllm_wait.ActionBase, "run", lambda *_arguments: {})
        monkeypatch.setattr(self.action, "_execute_module", self.answer, raising=False)

    def answer(self, module_name: str, module_args: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scripted answer of vllm_info."""
        assert task_vars["inventory_hostname"] == "spark1"
        assert module_name == "gb10.cluster.vllm_info"
        self.asked.append(module_args)
        if module_args["invocation"]:
            return self.earlier[module_args["invocation"]]
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def run(self, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> dict[str, Any]:
        """Run the action to completion."""
        given = {
            "name": "gb10-vllm.service",
            "url": "http://127.0.0.1:8000",
            "timeout": 600,
            "restarts": 0,
            **TLS,
            **arguments,
        }
        monkeypatch.setattr(self.action, "validate_argument_spec", lambda **_spec: (None, given), raising=False)
        return self.action.run(None, {"inventory_hostname": "spark1"})


HINT = " Full log: journalctl -u gb10-vllm.service"


def test_healthy_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, [info("API server is up", healthy=True)])
    answer = wait.run(monkeypatch)
    assert (answer["changed"], answer["ready_after"], answer.get("failed", False)) == (False, 41.5, False)
    assert (wait.shown, wait.clock.now) == ([], 1000.0)


def test_each_step_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        info("engine starts"),
        info("engine starts"),
        info("weights: 50%"),
        info("weights: 100%"),
        info(healthy=True),
    ]
    wait = Wait(monkeypatch, answers)
    assert not wait.run(monkeypatch).get("failed")
    assert wait.shown == [
        "  spark1:    0 s  engine starts",
        "  spark1:    4 s  weights: 50%",
        "  spark1:    6 s  weights: 100%",
    ]


def test_a_silent_step_is_shown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, [info("weights: 50%")] * 40 + [info(healthy=True)])
    wait.run(monkeypatch)
    assert [line.split()[1] for line in wait.shown] == ["0", "32", "64"]


def test_before_the_first_step_systemds_word_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, [info(active="activating", sub="start-pre"), info(healthy=True)])
    wait.run(monkeypatch)
    assert wait.shown == ["  spark1:    0 s  start-pre"]


def test_an_old_server_that_is_being_stopped_is_not_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    old = info(healthy=True, active="deactivating", sub="stop-sigterm", invocation="old")
    wait = Wait(monkeypatch, [old, info("engine starts", invocation="new"), info(healthy=True, invocation="new")])
    assert wait.run(monkeypatch)["service"]["invocation"] == "new"


def test_an_old_server_that_is_about_to_be_stopped_is_not_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    old = info(healthy=True, queued=True, invocation="old")
    wait = Wait(monkeypatch, [old, info("engine starts", invocation="new"), info(healthy=True, invocation="new")])
    assert wait.run(monkeypatch)["service"]["invocation"] == "new"


def test_a_start_that_systemd_has_yet_to_begin_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, [info(active="inactive", queued=True), info("engine starts"), info(healthy=True)])
    assert wait.run(monkeypatch)["changed"] is False


@pytest.mark.parametrize("active", ["failed", "inactive"])
def test_a_service_that_is_down_fails_at_once(monkeypatch: pytest.MonkeyPatch, active: str) -> None:
    wait = Wait(monkeypatch, [info("engine starts"), info(active=active, cause="ValueError: bad")])
    answer = wait.run(monkeypatch, restarts=5)
    assert answer == {
        "failed": True,
        "msg": f"gb10-vllm.service failed to start: ValueError: bad.{HINT}",
        "cause": "ValueError: bad",
    }


def test_a_restart_fails_with_the_cause_of_the_start_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    present = info("vLLM 0.32.0 starts", restarts=1, invocation="two", cause="")
    wait = Wait(
        monkeypatch, [info("engine starts"), present], {"one": info(cause="OSError: no weights (on 10.110.0.2)")}
    )
    answer = wait.run(monkeypatch)
    assert (answer["failed"], answer["cause"]) == (True, "OSError: no weights (on 10.110.0.2)")
    assert wait.clock.now == 1002.0, "it does not wait for the timeout"
    assert [asked["invocation"] for asked in wait.asked] == ["", "", "one"]


def test_a_restart_that_has_not_begun_needs_no_other_log(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(
        monkeypatch, [info(), info(restarts=1, cause="ValueError: bad", active="activating", sub="auto-restart")]
    )
    assert wait.run(monkeypatch)["cause"] == "ValueError: bad"


def test_a_forgiven_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [info(), info(restarts=1, invocation="two"), info(restarts=1, invocation="two", healthy=True)]
    assert not Wait(monkeypatch, answers).run(monkeypatch, restarts=1).get("failed")


def test_after_a_forgiven_restart_the_cause_is_that_of_the_last_start(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [info(), info(restarts=1, invocation="two"), info(restarts=2, invocation="three")]
    wait = Wait(monkeypatch, answers, {"one": info(cause="the earlier fault"), "two": info(cause="the present fault")})
    assert wait.run(monkeypatch, restarts=1)["cause"] == "the present fault"


def test_restarts_of_the_past_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, [info(restarts=7), info(restarts=7), info(restarts=7, healthy=True)])
    assert not wait.run(monkeypatch).get("failed")


def test_a_counter_that_began_anew_still_notices_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [info(restarts=7), info(restarts=0, invocation="two"), info(restarts=1, invocation="three")]
    assert Wait(monkeypatch, answers, {"two": info(cause="bad")}).run(monkeypatch)["cause"] == "bad"


def test_a_log_without_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Wait(monkeypatch, [info(active="failed", status=137)]).run(monkeypatch)
    assert answer["msg"] == f"gb10-vllm.service failed to start: its log has no error; it exited with status 137.{HINT}"


@pytest.mark.parametrize(("step", "told"), [("weights: 50%", "weights: 50%"), ("", "none")])
def test_timeout(monkeypatch: pytest.MonkeyPatch, step: str, told: str) -> None:
    wait = Wait(monkeypatch, [info(step)])
    answer = wait.run(monkeypatch, timeout=9)
    assert answer["failed"] is True
    assert answer["msg"].startswith(f"not healthy after 10 s; last step: {told}; cause: ")
    assert answer["msg"].endswith(f"docs/troubleshooting.md#start-timeout.{HINT}")


def test_a_module_that_fails_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Wait(monkeypatch, [{"failed": True, "msg": "systemctl show failed"}]).run(monkeypatch)
    assert (answer["failed"], answer["msg"]) == (True, "systemctl show failed")


def test_a_server_whose_certificate_is_another_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    old = info(untrusted="certificate verify failed", queued=True)
    wait = Wait(
        monkeypatch,
        [old, info("engine starts"), info("API server is up", untrusted="certificate verify failed: unknown CA")],
    )
    answer = wait.run(monkeypatch)
    assert (answer["failed"], wait.clock.now) == (True, 1004.0), "a stopping server does not count"
    assert answer["msg"].startswith(
        "http://127.0.0.1:8000 answers, but its TLS verification failed: certificate verify failed: unknown CA; cause: "
    )
    assert answer["msg"].endswith("docs/troubleshooting.md#tls-untrusted")
    assert all(TLS.items() <= asked.items() for asked in wait.asked)
