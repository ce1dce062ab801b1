"""What a host reads of its gateway: until when a report is awaited, and why a model does not answer."""

from __future__ import annotations

import io
import json
import urllib.error
from dataclasses import asdict
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, io_info, report, usage
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import ClientState, ModelState, State
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client

BIG = ModelState("n/big", "big", "n", "generate", True, "", 9)
TEXT = json.dumps({"models": [asdict(BIG)], "usage": {}})


class Asked(io_info.Gateway):
    """A gateway whose answers a test gives, and a clock that its pauses move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        super().__init__(io_client.Server("http://127.0.0.1:9"), "")
        self.now, self.answers_left, self.asked = 100.0, iter(answers), list[Any]()
        monkeypatch.setattr(io_info, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _ask(self, path: str, seconds: float, body: Any = None) -> str:
        self.asked.append((path, seconds, body))
        if isinstance(answer := next(self.answers_left), Exception):
            raise answer
        return str(answer)


def test_a_report_is_awaited_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, OSError(), "{", TEXT)
    assert asked.report(["n/big"], 2) == (io_info.Report((BIG,), {}), "")
    assert asked.asked == [("/gb10/report", 10.0, None)] * 3 and asked.now == 102
    asked = Asked(monkeypatch, TimeoutError(), TimeoutError(), ConnectionError("lost"))
    assert (asked.report([], 2), asked.now) == ((io_info.Report((), {}), "lost"), 102)
    assert Asked(monkeypatch, TimeoutError()).report([], 0)[1] == "TimeoutError"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("{}", ""),
        (TimeoutError(), "TimeoutError"),
        (ValueError("no key"), "no key"),
        (
            urllib.error.HTTPError("http://x", 503, "x", Message(), io.BytesIO(b"\xff".ljust(400, b"x"))),
            f"HTTP 503: \ufffd{'x' * 299}",
        ),
    ],
)
def test_a_model_that_does_not_answer_has_the_begin_of_the_reason(
    monkeypatch: pytest.MonkeyPatch, answer: Any, expected: str
) -> None:
    asked = Asked(monkeypatch, answer)
    assert asked.answers("big", "generate", 7.0) == expected
    ((path, seconds, body),) = asked.asked
    assert (path, seconds, body["model"]) == ("/v1/completions", 7.0, "big")


def test_clients_are_sorted_with_their_use(tmp_path: Path) -> None:
    path, known = tmp_path / "clients.json", clients.Clients()
    for name in ("bob", "alice"):
        known = clients.create(known, name, f"sk-{name}", 7, ["small"])
    path.write_text(clients.text(known), encoding="utf-8")
    used = {"bob": usage.Client(9, {"z": usage.Count(1), "a": usage.Count(2)}), "revoked": usage.Client(5)}
    found = [
        (each.name, each.created, each.last, each.models, list(each.usage)) for each in io_info.rows(str(path), used)
    ]
    assert found == [("alice", 7, 0, ("small",), []), ("bob", 7, 9, ("small",), ["a", "z"])]


def test_a_report_of_nothing_and_of_one_client_is_in_words() -> None:
    empty = report.lines(State("refused", [], [], {}), "http://x/v1")
    assert empty[:3] == ["Gateway http://x/v1: 0 of 0 model servers healthy, 0 clients", "error: refused", ""]
    assert empty[3].startswith("No client has a key: ")
    rows = ClientState("a", 0, 60, [], {"m": usage.Count(1), "n": usage.Count(2)})
    lines = report.lines(State("", [BIG], [rows], {}), "http://x/v1")
    assert lines[0].endswith("1 of 1 model servers healthy, 1 client") and lines[1].split()[0] == "model"
    assert [line.split() for line in lines[-2:]] == [
        ["a", "1970-01-01", "00:01", "m", "1", "0", "0", "0"],
        ["n", "2", "0", "0", "0"],
    ]
    assert "ANTHROPIC_MODEL=MODEL " in report.client_settings("http://x/v1", [])[4]
