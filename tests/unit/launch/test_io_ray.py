"""Query Ray's nodes over loopback, with the token, from a server that simulates Ray's State API."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray

TOKEN = "a-secret-token"
NODES = {"spark1": "10.110.0.1", "spark2": "10.110.0.2"}


def row(address: str, state: str = "ALIVE", gpus: float | None = 1.0) -> dict[str, Any]:
    """Return a row of the State API's nodes as in Ray 2.x, without unused keys."""
    resources = {"CPU": 20.0, "memory": 1e11} | ({} if gpus is None else {"GPU": gpus})
    return {"node_id": f"id-{address}", "node_ip": address, "state": state, "resources_total": resources}


BOTH = [row("10.110.0.1"), row("10.110.0.2")]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(BOTH, [], id="both"),
        pytest.param([*BOTH, row("10.110.0.2", "DEAD")], [], id="a former process is dead"),
        pytest.param([row("10.110.0.2", "DEAD"), *BOTH], [], id="whatever the order"),
        pytest.param(BOTH[:1], ["spark2 (10.110.0.2) has not joined"], id="one is missing"),
        pytest.param([], ["spark1 (10.110.0.1) has not joined", "spark2 (10.110.0.2) has not joined"], id="none"),
        pytest.param([BOTH[0], row("10.110.0.2", "DEAD")], ["spark2 (10.110.0.2) has not joined"], id="dead"),
        pytest.param(
            [BOTH[0], row("10.110.0.2", gpus=0)], ["spark2 (10.110.0.2) offers 0 GPUs instead of 1"], id="no GPU"
        ),
        pytest.param(
            [BOTH[0], row("10.110.0.2", gpus=None)],
            ["spark2 (10.110.0.2) offers 0 GPUs instead of 1"],
            id="no word on GPUs",
        ),
        pytest.param([*BOTH, row("10.110.0.3")], ["10.110.0.3 joined and is not in the inventory"], id="a stranger"),
        pytest.param([*BOTH, row("10.110.0.3", "DEAD")], [], id="a stranger that has left"),
        pytest.param(
            [*BOTH, row("10.110.0.2")],
            ["spark2 (10.110.0.2) is listed 2 times: Ray has not removed its old process yet"],
            id="counted twice",
        ),
        pytest.param(
            [BOTH[0], row("192.168.1.12")],
            ["spark2 (10.110.0.2) has not joined", "192.168.1.12 joined and is not in the inventory"],
            id="joined by another address",
        ),
    ],
)
def test_missing(rows: list[dict[str, Any]], expected: list[str]) -> None:
    assert io_ray.missing(rows, NODES, 1) == expected


class Server(HTTPServer):
    """Simulate Ray's dashboard: return `answers` in turn and repeat the last one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Any] = []
        self.requests: list[tuple[str, str | None]] = []
        self.open = False


class Handler(BaseHTTPRequestHandler):
    """Require the token as Ray does with RAY_AUTH_MODE=token."""

    server: Server

    def do_GET(self) -> None:
        """Return the next listing, or reject the request."""
        authorization = self.headers.get("Authorization")
        self.server.requests.append((self.path, authorization))
        if authorization != f"Bearer {TOKEN}" and not self.server.open:
            self.reply(401, b'{"detail": "Unauthorized"}')
            return
        answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        if isinstance(answer, bytes):
            self.wfile.write(answer)
        else:
            self.reply(
                200, json.dumps({"result": True, "data": {"result": {"total": len(answer), "result": answer}}}).encode()
            )

    def reply(self, status: int, body: bytes) -> None:
        """Send a complete response."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(io_ray, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(io_local, "_unit", lambda _pid: io_ray.UNITS[0])
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "ray.token"
    path.write_text(f"{TOKEN}\n", encoding="ascii")
    return str(path)


def failure(call: Callable[[], Any]) -> str:
    with pytest.raises(io_ray.RayError) as raised:
        call()
    return str(raised.value)


def test_listing_takes_the_token_from_its_file(ray: Server, token: str) -> None:
    ray.answers = [BOTH]
    assert io_ray.listing("nodes", ray.server_port, token) == BOTH
    assert ray.requests == [("/api/v0/nodes?limit=1000", f"Bearer {TOKEN}")]


def test_another_process_on_the_port_gets_no_token(ray: Server, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Ray starts, any local user may listen there, and answer 401 like Ray."""
    monkeypatch.setattr(io_local, "_unit", lambda _pid: "")
    ray.answers = [BOTH]
    said = failure(lambda: io_ray.wait(NODES, 1, ray.server_port, token, 0))
    assert "(no unit) instead of gb10-ray.service, so Ray's token was not sent" in said
    assert ray.requests == []


def test_a_wrong_token_is_refused_and_not_told(ray: Server, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("another-secret", encoding="ascii")
    said = failure(lambda: io_ray.listing("nodes", ray.server_port, str(path)))
    assert "401" in said and str(ray.server_port) in said
    assert "another-secret" not in said


@pytest.mark.parametrize(
    "content",
    [
        b"first-secret\nsecond-secret",
        b"first-secret\r\nsecond-secret",
        b"first-secret second-secret",
        b"",
        b"first-secret-\xc3\xa4",
    ],
    ids=["two lines", "two DOS lines", "two words", "empty", "no ASCII"],
)
def test_a_broken_token_file_is_told_without_its_content(ray: Server, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    said = failure(lambda: io_ray.listing("nodes", ray.server_port, str(path)))
    assert "secret" not in said
    assert ray.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.0 200 OK\r\n\r\n<html>",
        b'HTTP/1.0 200 OK\r\n\r\n{"result": false, "data": null}',
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.0 500 Oops\r\n\r\n",
        b"",
    ],
    ids=["no HTTP", "cut off", "no JSON", "no data", "other JSON", "deep JSON", "500", "closed"],
)
def test_any_other_answer_is_an_error(ray: Server, token: str, answer: bytes) -> None:
    ray.answers = [answer]
    said = failure(lambda: io_ray.listing("nodes", ray.server_port, token))
    assert said.startswith("Ray's State API at http://127.0.0.1:")
    assert TOKEN not in said


def test_the_token_is_not_sent_to_a_proxy(ray: Server, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ray.answers = [BOTH]
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert io_ray.listing("nodes", ray.server_port, token) == BOTH


def test_wait_ends_when_every_node_has_joined(ray: Server, token: str) -> None:
    ray.answers = [b"", BOTH[:1], [BOTH[0], row("10.110.0.2", gpus=0)], BOTH]
    assert io_ray.wait(NODES, 1, ray.server_port, token, 30) == BOTH
    # The last request verifies that Ray requires the token.
    assert [authorization for _path, authorization in ray.requests] == [f"Bearer {TOKEN}"] * 4 + [None]


def test_a_ray_that_asks_for_no_token_is_refused_at_once(ray: Server, token: str) -> None:
    ray.answers, ray.open = [BOTH], True
    said = failure(lambda: io_ray.wait(NODES, 1, ray.server_port, token, 30))
    assert "accepted a request without a token (HTTP 200). Expected: 401 or 403" in said
    assert len(ray.requests) == 2


def test_a_ray_that_is_gone_proves_nothing() -> None:
    with Server() as server:
        port = server.server_port
    assert "did not respond" in failure(lambda: io_ray.require_token(port))


def test_a_failure_names_the_missing_node_or_the_missing_answer(ray: Server, token: str) -> None:
    ray.answers = [BOTH[:1]]
    said = failure(lambda: io_ray.wait(NODES, 1, ray.server_port, token, 0.1))
    assert said == "after 0.1 s: spark2 (10.110.0.2) has not joined"
    ray.answers = [b""]
    unanswered = failure(lambda: io_ray.wait(NODES, 1, ray.server_port, token, 0))
    assert unanswered.startswith("after 0 s: Ray's State API at ")
    assert "none.token" in failure(lambda: io_ray.listing("nodes", 1, "/none.token"))


@pytest.mark.parametrize(
    "rows",
    [[1], [{"state": "ALIVE"}], [{**BOTH[0], "resources_total": None}, BOTH[1]]],
    ids=["no row", "no address", "no resources"],
)
def test_a_list_of_another_form_is_reported_when_the_time_is_over(ray: Server, token: str, rows: Any) -> None:
    ray.answers = [rows]
    said = failure(lambda: io_ray.wait(NODES, 1, ray.server_port, token, 0))
    assert said.startswith("after 0 s: Ray's list of nodes has another form: ")


EXPECT = [f"--expect={name}={address}" for name, address in NODES.items()]


def test_the_script_waits_ten_minutes_at_the_dashboards_port(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[object, ...]] = []
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/token")
    monkeypatch.setattr(io_ray, "wait", lambda *arguments: waited.append(arguments))
    assert io_ray.main(EXPECT) == 0
    assert waited == [(dict(NODES), 1, 8265, "/token", 600)]


def test_the_script_counts_the_nodes_and_tells_who_is_missing(
    ray: Server, token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", token)
    ray.answers = [BOTH]
    assert io_ray.main([*EXPECT, f"--port={ray.server_port}", "--timeout=5"]) == 0
    assert capsys.readouterr() == ("Ray counts all 2 nodes\n", "")
    ray.answers = [BOTH[1:]]
    assert io_ray.main([*EXPECT, f"--port={ray.server_port}", "--timeout=0"]) == 1
    assert capsys.readouterr() == ("", "Ray is not complete after 0 s: spark1 (10.110.0.1) has not joined\n")
