"""Requesting a token from a vLLM server, and reading its journal."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from certificates import authority
from run_module import program
from small_server import serving

from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, probe

#: Printed by vLLM 0.32.0, abridged.
METRICS = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="tiny"}} {prompt}
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {generated}
vllm:iteration_tokens_total_sum{{engine="0",model_name="tiny"}} 62.0
vllm:generation_tokens_created{{engine="0",model_name="tiny"}} 1.7952198717871225e+09
"""


class Vllm:
    """A fake vLLM server whose behavior a test sets. Without a completion, it hangs until the test is over."""

    def __init__(self) -> None:
        self.health, self.cut_off, self.metrics = 200, False, True
        self.completion: tuple[int, str] | None = (200, "{}")
        self.generated, self.per_look = 48.0, 0.0
        self.asked: list[dict[str, Any]] = []
        self.end = threading.Event()
        self.at = io_client.Server("")

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        """Return health, metrics, or a completion, which is truncated if the test sets that."""
        status, body = self.health, ""
        if request.path == "/metrics":
            self.generated += self.per_look
            status, body = 200 if self.metrics else 404, METRICS.format(prompt=14.0, generated=self.generated)
        elif request.command == "POST":
            self.asked.append({"path": request.path, **json.loads(request.body)})  # type: ignore[attr-defined]
            if self.completion is None:
                self.end.wait(30)
            status, body = self.completion or (200, "{}")
        return status, body, {"content-length": str(len(body) + 10)} if self.cut_off else {}


@pytest.fixture
def vllm() -> Iterator[Vllm]:
    found = Vllm()
    with serving(found.answer) as url:
        found.at = io_client.Server(url)
        yield found
        found.end.set()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, '{"error": "EngineDeadError"}', 'HTTP 500: {"error": "EngineDeadError"}'),
        (404, "The model `tiny` does not exist.", "HTTP 404: The model `tiny` does not exist."),
        (500, "x" * 9999, "HTTP 500: " + "x" * 500),
        (400, '{"error": {"message": "Out of range float values are not JSON compliant"}}', probe.NOT_FINITE),
    ],
    ids=["engine is dead", "other model", "long", "not finite"],
)
def test_an_error_is_no_answer_however_many_tokens_others_get(vllm: Vllm, status: int, body: str, reason: str) -> None:
    vllm.completion, vllm.per_look = (status, body), 5.0
    assert io_client.answers(vllm.at, "tiny", 10) == (False, reason)


def test_a_busy_engine_answers(vllm: Vllm) -> None:
    vllm.completion, vllm.per_look = None, 5.0
    assert io_client.answers(vllm.at, "tiny", 0.2) == (True, "")


@pytest.mark.parametrize("metrics", [True, False], ids=["frozen", "no metrics"])
def test_a_hanging_engine_does_not_answer(vllm: Vllm, metrics: bool) -> None:
    vllm.completion, vllm.metrics = None, metrics
    answered, reason = io_client.answers(vllm.at, "tiny", 0.2)
    assert not answered
    assert reason.startswith("no answer within 0.2 s and no progress in other requests: ")
    assert reason.endswith("timed out")


@pytest.mark.parametrize("completion", [(200, "{}"), (500, "oops")], ids=["answer", "error"])
def test_what_breaks_off_is_no_answer(vllm: Vllm, completion: tuple[int, str]) -> None:
    vllm.cut_off, vllm.completion = True, completion
    answered, reason = io_client.answers(vllm.at, "tiny", 10)
    assert not answered and "no answer" in reason


def test_nobody_listens() -> None:
    with serving(Vllm().answer) as url:
        at = io_client.Server(url)
    answered, reason = io_client.answers(at, "tiny", 1)
    assert not answered and "refused" in reason
    assert (io_client.health(at), io_client.tokens(at)) == ((False, ""), None)


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False), (500, False)])
def test_health(vllm: Vllm, status: int, expected: bool) -> None:
    vllm.health = status
    assert io_client.health(vllm.at) == (expected, "")


def test_the_server_is_asked_past_a_proxy(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert io_client.health(vllm.at)[0]
    assert io_client.answers(vllm.at, "tiny", 10) == (True, "")
    (asked,) = vllm.asked
    assert (asked["path"], asked["model"], asked["max_tokens"]) == ("/v1/completions", "tiny", 1)


def test_the_end_of_a_served_certificate_is_read(vllm: Vllm, tmp_path: Path) -> None:
    ca = authority()
    pair = ca.issue("127.0.0.1", days=30)
    for name, trusted in (("ca", ca), ("other", authority())):
        (tmp_path / f"{name}.crt").write_text(trusted.text, encoding="ascii")
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(*pair.write(tmp_path, "server"))
    with serving(vllm.answer, own) as url:
        server = io_client.Server(url, str(tmp_path / "ca.crt"))
        assert server.expires(5) == pair.certificate.not_valid_after_utc.timestamp()
        with pytest.raises(OSError, match="certificate verify failed"):
            io_client.Server(url, str(tmp_path / "other.crt")).expires(5)
    assert vllm.at.expires(5) is None, "an address without TLS"


def test_tokens_are_those_read_and_written(vllm: Vllm) -> None:
    assert io_client.tokens(vllm.at) == 14.0 + 48.0
    vllm.generated = 1.25e7
    assert io_client.tokens(vllm.at) == 14.0 + 1.25e7


def entry(seconds: float, message: object) -> str:
    return json.dumps({"__MONOTONIC_TIMESTAMP": str(int(seconds * 1e6)), "MESSAGE": message, "__CURSOR": "s=1"})


UP = "INFO:     Application startup complete."


def test_journal() -> None:
    asked: list[list[str]] = []
    coloured = list(b"\x1b[36m(Worker)\x1b[0m loads")
    told = [
        entry(12.5, "starts"),
        entry(13, coloured),
        entry(14, None),
        '{"__MONOTONIC_TIMESTAMP": "15000000"}',
        entry(40, UP),
    ]

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 0, "\n".join(told), ""

    entries = io_client.journal(run, io_client.of_start("0f3c"), 500)
    assert entries == [(12.5, "starts"), (13.0, "\x1b[36m(Worker)\x1b[0m loads"), (14.0, ""), (15.0, ""), (40.0, UP)]
    ((program, *arguments),) = asked
    assert (program, "journalctl" in arguments) == ("timeout", True)
    assert {"--lines=500", "--output=json", "_SYSTEMD_INVOCATION_ID=0f3c", "+", "INVOCATION_ID=0f3c"} <= set(arguments)
    assert io_client.ready_after(entries, 10.04) == 30.0
    assert io_client.ready_after(entries[:2], 10.0) is None


def test_journal_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank can write a message of any size."""
    path = program(tmp_path, "journalctl", f"head -c 3000000 /dev/zero | tr '\\0' x; echo; echo '{entry(1, 'last')}'")
    monkeypatch.setenv("PATH", f"{path}:{os.defpath}")
    monkeypatch.setattr(io_client, "_MOST_JOURNAL", 1000)
    read = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        read.append(len(done.stdout))
        return done.returncode, done.stdout, done.stderr

    assert io_client.journal(run, [], 10) == [(1.0, "last")]
    assert read == [1000]


def test_journal_fails() -> None:
    with pytest.raises(ValueError, match=r"journalctl --boot --unit=gb10-vllm\.service failed: No journal files"):
        io_client.journal(
            lambda _argv: (1, "", "No journal files were found.\n"), io_client.of_unit("gb10-vllm.service"), 1
        )


def test_a_message_of_systemd_is_systemds() -> None:
    """Any user can write INVOCATION_ID, and a datagram with two messages is a list of them."""
    assert io_client.of_start("0f3c")[-2:] == ["INVOCATION_ID=0f3c", "_PID=1"]
    lines = [entry(1, ["first", "second"]), entry(2, [list(b"third"), "x"]), entry(3, [])]
    assert [text for _when, text in io_client._entries(lines)] == ["first", "third", ""]
