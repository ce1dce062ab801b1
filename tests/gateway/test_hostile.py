"""The gateway's program beside a model's server that lies, and clients without a key: others have their answers."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from certificates import authority
from gateway import proxy as running
from gateway.proxy import QUICK, Proxy

SMALL = "small"
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LINE = b',"usage":{}\n' * 5000
#: The bytes that the server sends without an end, after its first ones.
FLOODS = {
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "chunks of one byte": (_STREAM, b"1\r\nx\r\n" * 8000),
    "usages": (_STREAM, b"%x\r\n%s\r\n" % (len(_LINE), _LINE)),
    "numbers as an event": (_STREAM, b"ffff\r\ndata: [" + b"9e-324," * 9361 + b"\r\n"),
}


class Liar:
    """A server whose health and list are right, and whose answers are a flood."""

    def __init__(self, pair: tuple[str, str] | None = None) -> None:
        self.begin, self.flood = b"", b""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if pair else None
        if self._context and pair:
            self._context.load_cert_chain(*pair)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._socket.accept()[0],), daemon=True).start()

    def _answer(self, accepted: socket.socket) -> None:
        with suppress(OSError):
            client = self._context.wrap_socket(accepted, server_side=True) if self._context else accepted
            with client:
                self._send(client)

    def _send(self, client: socket.socket) -> None:
        request = client.recv(1 << 16)
        if request.startswith(b"GET"):
            body = b"" if b"/health" in request else b'{"data":[{"id":"small"}]}'
            client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        client.sendall(self.begin)
        while self.flood:
            client.sendall(self.flood)
        if isinstance(client, ssl.SSLSocket):
            client.unwrap()


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    with closing(Liar()) as found:
        yield found


@pytest.fixture(scope="module")
def proxy(liar: Liar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    running.python()
    models = [{"name": SMALL, "url": f"http://127.0.0.1:{liar.port}/v1", "cluster": "south"}]
    with running.started(running.planned(models), {}, tmp_path_factory.mktemp("gateway")) as found:
        yield found


def slowest(proxy: Proxy, seconds: float) -> float:
    """Return the longest answer of several in a row."""
    times, end = [0.0], time.monotonic() + seconds
    while time.monotonic() < end:
        answer = proxy.ask("/health")
        assert answer.status == 200
        times.append(answer.seconds)
    return max(times)


def opened(proxy: Proxy, data: bytes, count: int) -> list[socket.socket]:
    found = [running.connect(proxy.url) for _number in range(count)]
    for client in found:
        client.setblocking(False)
        client.send(data)
    return found


@pytest.mark.parametrize("name", FLOODS)
def test_a_server_that_lies_delays_nobody_else(proxy: Proxy, liar: Liar, name: str) -> None:
    """40 such streams silenced the gateway for 8 to 16 s."""
    liar.begin, liar.flood = FLOODS[name]
    key = proxy.add(f"client-{len(name)}")
    body = b'{"model":"small","stream":true,"messages":[{"role":"user","content":"x"}]}'
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    streams = opened(proxy, head.encode() + body, 40)
    try:
        assert slowest(proxy, 4) < QUICK
    finally:
        for client in streams:
            client.close()


def test_requests_without_a_key_in_one_piece_delay_nobody_else(proxy: Proxy) -> None:
    """From Python 3.12 on, 500 connections with 8 KB of them silenced the gateway for 12 s."""
    clients = opened(proxy, b"GET / HTTP/1.1\r\nHost:\r\n\r\n" * 327, 400)
    try:
        assert slowest(proxy, 3) < QUICK
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("size", [30_000, 300_000, 700_000])
def test_an_answer_that_ends_with_its_connection_is_complete(tmp_path: Path, size: int) -> None:
    """The transport of TLS is closing while data waits: of 300 KB the client got a part, and no error."""
    ca, body = authority(), b"x" * size
    with closing(Liar(ca.issue("127.0.0.1").write(tmp_path, "server"))) as server:
        server.begin = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body
        models = [{"name": SMALL, "url": f"https://127.0.0.1:{server.port}/v1", "cluster": "south", "ca": ca.text}]
        with running.started(running.planned(models), {}, tmp_path) as proxy:
            key = proxy.add("alice")
            assert [len(proxy.chat(SMALL, key).text) for _request in range(4)] == [size] * 4
