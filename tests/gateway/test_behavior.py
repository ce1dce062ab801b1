"""What clients notice of the gateway: errors, disconnections, retries, limits, browsers, and other clients'
mistakes."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from certificates import authority
from fake_backend import USAGE, Backend, serve
from gateway import proxy as running
from gateway.proxy import QUICK, Answer, Proxy

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits

HELLO: Any = [{"role": "user", "content": "Hello"}]
CHAT, PAGE = "/v1/chat/completions", "https://chat.example.com"
SILENCE = 3
#: vLLM's answer to a prompt that is too long.
TOO_LONG: Any = {
    "error": {"message": "This model's maximum context length is 1024 tokens.", "param": "input_tokens", "code": 400}
}


@dataclass
class World:
    """The gateway, and its servers: twin has two replicas, a and b."""

    proxy: Proxy
    servers: dict[str, Backend]

    @contextmanager
    def changed(self, server_id: str, /, **values: Any) -> Iterator[Backend]:
        """Change how a server behaves."""
        server = self.servers[server_id]
        before = {key: getattr(server, key) for key in values}
        vars(server).update(values)
        try:
            yield server
        finally:
            vars(server).update(before)

    @contextmanager
    def twins(self, **values: Any) -> Iterator[Counter[str]]:
        """Change both replicas alike, and count the requests that they get."""
        with self.changed("a", **values) as first, self.changed("b", **values) as second:
            before, counts = len(first.bodies) + len(second.bodies), Counter[str]()
            yield counts
            counts["requests"] = len(first.bodies) + len(second.bodies) - before


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    running.python()
    servers = {
        "chat": Backend("chat"),
        "a": Backend("twin"),
        "b": Backend("twin"),
        "vector": Backend("vector"),
        "secret": Backend("secret"),
    }
    kinds = {"vector": "embed"}
    with running.closed_network(), ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(serve(server))
        models = [
            {
                "name": server.name,
                "url": f"http://127.0.0.1:{server.port}/v1",
                "cluster": cluster,
                "kind": kinds.get(server.name, "generate"),
            }
            for cluster, server in servers.items()
        ]
        # Only failed requests start checks in these tests.
        planned = running.planned(
            models,
            silence_timeout=SILENCE,
            health_interval=3600,
            origins=[PAGE],
            fallbacks={"chat": ["twin"], "twin": ["secret"]},
        )
        found = stack.enter_context(running.started(planned, {}, tmp_path_factory.mktemp("gateway")))
        yield World(found, servers)


@pytest.fixture(scope="module")
def alice(world: World) -> str:
    return world.proxy.add("alice")


@pytest.fixture(scope="module")
def bob(world: World) -> str:
    return world.proxy.add("bob")


def head(key: str, size: int, path: str = CHAT, **more: str) -> bytes:
    lines = {
        "host": "gateway",
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "content-length": str(size),
        **more,
    }
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""]
    ).encode()


def connected(world: World, *parts: bytes, source: str = "127.0.0.1") -> socket.socket:
    """Return a connection that has sent some bytes."""
    found = running.connect(world.proxy.url, source=source)
    for part in parts:
        found.sendall(part)
    return found


def asked(key: str, **more: Any) -> bytes:
    body = json.dumps({"model": "chat", "messages": HELLO, **more}).encode()
    return head(key, len(body)) + body


def until(holds: Any, seconds: float) -> float:
    """Wait for a condition, and return how long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds
        time.sleep(0.01)
    return time.monotonic() - began


def counted(world: World, client: str) -> dict[str, list[int]]:
    """Return the requests, failures, prompt tokens and completion tokens of a client, by model."""
    models = world.proxy.wait(lambda report: client in report["usage"])["usage"][client]["models"]
    return {
        name: [count[key] for key in ("requests", "failures", "prompt_tokens", "completion_tokens")]
        for name, count in models.items()
    }


def alive(world: World) -> float:
    """Return the seconds of an answer to /health."""
    answer = world.proxy.ask("/health")
    assert answer.status == 200
    return answer.seconds


def most(times: Sequence[float]) -> float:
    """Return the seconds in which nine of ten answers came: on a busy machine, one may wait for the processor."""
    return sorted(times)[int(0.9 * (len(times) - 1))]


# Item 1 of the clients' review.
def test_a_wrong_request_of_one_client_changes_nothing_for_others(world: World, alice: str, bob: str) -> None:
    server = world.servers["chat"]
    checks, bodies = server.checks, len(server.bodies)
    for _ in range(5):
        wrong = world.proxy.ask("/v1/embeddings", {"model": "chat", "input": "Hello"}, bob)
        assert (wrong.status, wrong.data["error"]["code"]) == (400, "wrong_path")
        chained = world.proxy.ask(
            "/v1/responses", {"model": "chat", "input": "Hello", "previous_response_id": "x"}, bob
        )
        assert (chained.status, chained.data["error"]["message"]) == (404, "Response with id 'x' not found.")
        assert world.proxy.chat("chat", alice).status == 200
    assert len(server.bodies) == bodies + 10
    time.sleep(2.5)
    assert server.checks == checks, "a client's mistake is no reason to check the server"


# Item 2.
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_ends_at_the_server_when_its_client_leaves(world: World, stream: bool) -> None:
    name = f"early-{stream}".lower()
    with world.changed("chat", pause=SILENCE + 9.0, left=0) as server:
        with connected(world, asked(world.proxy.add(name), stream=stream)):
            until(lambda: server.running == 1, 5)
            time.sleep(0.3)
        until(lambda: server.left == 1, SILENCE - 0.5)
        assert server.running == 0
    assert counted(world, name) == {"chat": [1, 0, 0, 0]}


# Item 3.
def test_another_replica_answers_for_a_broken_one(world: World, alice: str) -> None:
    with world.changed("a", broken=500) as broken:
        before = len(broken.bodies)
        assert [world.proxy.chat("twin", alice).status for _ in range(6)] == [200] * 6
        assert 0 < len(broken.bodies) - before <= 6, "each server gets a request once"


def test_two_broken_replicas_are_asked_once_each(world: World, alice: str) -> None:
    with world.twins(broken=503) as counts:
        answer = world.proxy.chat("twin", alice)
    assert (answer.status, answer.data["error"]["message"]) == (503, "the engine is dead"), "the last one's own answer"
    assert counts["requests"] == 2


def test_a_silent_server_is_not_replaced_after_the_time_limit(world: World, alice: str) -> None:
    with world.twins(pause=60.0) as counts:
        answer = world.proxy.chat("twin", alice)
        until(lambda: world.servers["a"].running + world.servers["b"].running == 0, 2)
    error = answer.data["error"]
    assert (answer.status, error["code"], answer.headers["x-should-retry"]) == (504, "timeout", "false")
    assert error["message"] == f"The model's server sent nothing for {SILENCE} s."
    assert SILENCE <= answer.seconds < SILENCE + 2 and counts["requests"] == 1


def test_the_error_of_the_only_server_is_the_answer(world: World, alice: str) -> None:
    """A fallback is for a model without a server, not for a request that a server refused."""
    with world.changed("chat", broken=500) as server:
        before = len(server.bodies)
        answer = world.proxy.chat("chat", alice)
        assert (answer.status, answer.data["error"]["message"]) == (500, "the engine is dead")
        assert len(server.bodies) == before + 1


def test_a_stream_may_take_longer_than_the_longest_silence(world: World, alice: str) -> None:
    with world.changed("chat", pause=SILENCE / 2):
        answer = world.proxy.chat("chat", alice, stream=True)
    assert answer.seconds > SILENCE and [event["choices"][0]["delta"].get("content") for event in answer.events] == [
        "one",
        " two",
        " three",
        None,
    ]


@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        (CHAT, {"messages": HELLO}, '\n\ndata: {"error": {"message": "The model\'s server ended its answer early."'),
        (
            "/v1/messages",
            {"messages": HELLO, "max_tokens": 9},
            '\n\nevent: error\ndata: {"type": "error", "error": {"type": "server_error"',
        ),
    ],
)
def test_a_broken_stream_ends_with_an_error_and_no_other_server_answers(
    world: World, alice: str, path: str, body: dict[str, Any], last: str
) -> None:
    with world.twins(breaks=2) as counts:
        answer = world.proxy.ask(path, {"model": "twin", "stream": True, **body}, alice)
    assert counts["requests"] == 1
    assert answer.status == 200 and last in answer.text and "[DONE]" not in answer.text and "two" in answer.text


# Items 4 and 5, L1 and L2 of the security review.
LINE = re.compile(
    r"client=[a-z-]+ model=(?:-|[a-z]+(?: answered=[a-z]+)?) path=/[a-z0-9_/]+ status=\d+ prompt_tokens=\d+ "
    r"completion_tokens=\d+ seconds=\d+\.\d{3}"
)


def test_the_log_has_a_line_of_each_request_and_no_text(world: World) -> None:
    secret = "SECRET-TEXT"
    key = world.proxy.add("logged")
    for body in ({"messages": secret}, {"messages": [{"content": secret}]}, {"response_format": secret}):
        world.proxy.chat("chat", key, **body)
    world.proxy.chat(secret, key)
    refused: Any = {"error": {"message": f"1 validation error: input_value='{secret}'"}}
    with world.changed("chat", refusal=refused):
        assert secret in world.proxy.chat("chat", key).text, "the client sees the server's words"
    world.proxy.ask(CHAT, secret.encode(), key)
    world.proxy.ask(f"/v1/{secret}", b"{}", key)
    with world.changed("chat", broken=500):
        world.proxy.chat("chat", key)
    lines = [line for line in world.proxy.log().splitlines() if "client=logged" in line]
    assert len(lines) == 7 and all(LINE.fullmatch(line) for line in lines), lines
    assert secret not in world.proxy.log()
    assert lines[0].startswith(
        "client=logged model=chat path=/v1/chat/completions status=200 prompt_tokens=7 completion_tokens=3 seconds="
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("broken", [200, 500])
def test_an_answer_has_no_header_of_the_back_ends(world: World, alice: str, stream: bool, broken: int) -> None:
    with world.changed("chat", broken=broken):
        answer = world.proxy.chat("chat", alice, stream=stream)
    assert set(answer.headers) <= {
        "content-type",
        "content-length",
        "transfer-encoding",
        "date",
        "server",
        "connection",
    }
    assert answer.headers["server"] == "gb10"


# Item 6.
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/messages", "/v1/responses"])
def test_the_servers_error_reaches_the_client_unchanged(world: World, alice: str, path: str) -> None:
    with world.changed("chat", refusal=TOO_LONG):
        answer = world.proxy.ask(path, {"model": "chat", "messages": HELLO}, alice)
    assert (answer.status, answer.text) == (400, json.dumps(TOO_LONG))


def test_a_server_that_does_not_take_the_gateways_key_is_not_the_clients_mistake(world: World, alice: str) -> None:
    with world.twins(key="other"):
        answer = world.proxy.chat("twin", alice)
        assert (answer.status, answer.data["error"]["code"]) == (503, "model_unavailable")
        world.proxy.wait(lambda report: not report["models"][1]["healthy"])
    world.proxy.chat("chat", alice)
    recovered(world)


def recovered(world: World) -> None:
    """Start a check by a failed request, and wait until all servers are healthy."""
    with world.changed("chat", broken=500):
        world.proxy.chat("chat", next(iter(world.proxy.keys.values())))
    world.proxy.wait(lambda report: all(model["healthy"] for model in report["models"]))


# Item 7.
def test_the_page_of_a_browser_can_use_the_gateway(world: World, alice: str) -> None:
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
    }
    for path in (CHAT, "/v1/models"):
        answer = world.proxy.ask(path, method="OPTIONS", origin=PAGE, **asks)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, PAGE)
        assert answer.headers["access-control-allow-headers"] == asks["access-control-request-headers"]
        assert answer.headers["access-control-allow-methods"] == "GET, POST"
    answers = [world.proxy.ask("/v1/models", key=key, origin=PAGE) for key in (alice, "sk-wrong")]
    answers.append(world.proxy.ask(CHAT, {"model": "chat", "messages": HELLO, "stream": True}, alice, origin=PAGE))
    answers.append(world.proxy.ask(CHAT, {"model": "none"}, alice, origin=PAGE))
    assert [answer.status for answer in answers] == [200, 401, 200, 404]
    assert all(
        (answer.headers["access-control-allow-origin"], answer.headers["vary"]) == (PAGE, "Origin")
        for answer in answers
    )


def test_the_page_of_another_origin_cannot(world: World, alice: str) -> None:
    other = {"origin": "https://other.example", "access-control-request-method": "POST"}
    answers = [
        world.proxy.ask("/v1/models", key=key, method=method, **other)
        for key, method in (("", "OPTIONS"), (alice, "GET"))
    ]
    assert [answer.status for answer in answers] == [401, 200]
    assert not [name for answer in answers for name in answer.headers if name.startswith("access-control")]


def test_a_body_with_another_type_is_still_json(world: World, alice: str) -> None:
    body = json.dumps({"model": "chat", "messages": HELLO}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert world.proxy.ask(CHAT, body, alice, **{"content-type": kind}).status == 200
    form = world.proxy.ask(CHAT, b"model=chat", alice, **{"content-type": "application/x-www-form-urlencoded"})
    assert (form.status, form.data["error"]["message"]) == (400, "The body is not JSON.")
    packed = world.proxy.ask(CHAT, body, alice, **{"content-encoding": "gzip"})
    assert (packed.status, packed.data["error"]["code"]) == (415, "unsupported_encoding")


def test_a_client_may_wait_for_permission_to_send_a_body(world: World, alice: str) -> None:
    body = json.dumps({"model": "chat", "messages": HELLO}).encode()
    with connected(world, head(alice, len(body), expect="100-continue")) as client:
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    with connected(world, head("sk-wrong", len(body), expect="100-continue")) as client:
        assert client.recv(100).startswith(b"HTTP/1.1 401 ")


# Item 12.
def test_a_client_that_reads_nothing_holds_back_its_server(world: World, alice: str, bob: str) -> None:
    before = world.proxy.memory()
    with world.changed("chat", words=200_000, sent=0) as server, ExitStack() as stack:
        clients = [stack.enter_context(connected(world, asked(alice, stream=True))) for _ in range(10)]
        until(lambda: server.sent > 1000, 10)
        seen = -1
        while server.sent != seen:
            seen = server.sent
            time.sleep(0.7)
        assert seen < 10 * server.words / 2, "most words are still at the server"
        assert world.proxy.memory() - before < 50
        assert world.proxy.chat("vector", bob).data["error"]["code"] == "wrong_path" and alive(world) < QUICK
        assert world.proxy.ask("/v1/embeddings", {"model": "vector", "input": "x"}, bob).seconds < QUICK
        # After the longest silence such a client is disconnected.
        until(lambda: server.running == 0, SILENCE + 5)
        del clients


@pytest.mark.parametrize(
    "later", [b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: 9999\r\n\r\n" + b"a" * 9999]
)
def test_requests_behind_a_running_one_need_no_memory(world: World, alice: str, later: bytes) -> None:
    """The library keeps them until the answer ends: 300 connections took 2 GB."""
    data = later * ((1 << 20) // len(later))
    with world.twins(pause=60.0), ExitStack() as stack:
        clients = [stack.enter_context(connected(world, asked(alice, model="twin"))) for _ in range(20)]
        until(lambda: world.servers["a"].running + world.servers["b"].running == 20, 10)
        before = world.proxy.memory()
        for client in clients:
            with suppress(OSError):
                client.sendall(data * 8)
        assert world.proxy.memory() - before < 30
        assert alive(world) < QUICK


def test_a_long_stream_needs_no_memory(world: World, alice: str) -> None:
    with world.changed("chat", words=20_000):
        world.proxy.chat("chat", alice, stream=True)
        before = world.proxy.memory()
        answer = world.proxy.chat("chat", alice, stream=True)
    assert len(answer.events) == 20_001 and world.proxy.memory() - before < 5


@pytest.mark.parametrize(("path", "prompt"), [(CHAT, 7), ("/v1/messages", 7), ("/v1/responses", 0)])
def test_a_stream_counts_what_was_sent_when_its_client_leaves(world: World, path: str, prompt: int) -> None:
    name = f"leaver-{path.rpartition('/')[2]}"
    body = json.dumps({"model": "chat", "messages": HELLO, "stream": True}).encode()
    with world.changed("chat", pause=0.3, words=50):
        client = connected(world, head(world.proxy.add(name), len(body), path) + body)
        seen = b""
        while b"three" not in seen:
            seen += client.recv(4096)
        client.close()
        assert counted(world, name) == {"chat": [1, 0, prompt, 3]}


def test_each_request_is_counted_once_and_errors_are_failures(world: World) -> None:
    key = world.proxy.add("counted")
    with world.changed("chat", refusal={**TOO_LONG, "usage": USAGE}):
        assert world.proxy.chat("chat", key).status == 400
    with world.twins(broken=503):
        assert world.proxy.chat("twin", key).status == 503
    with world.changed("a", broken=500):
        assert [world.proxy.chat("twin", key).status for _ in range(2)] == [200, 200]
    with world.twins(breaks=2):
        assert "error" in world.proxy.chat("twin", key, stream=True).text
    assert world.proxy.chat("none", key).status == 404
    assert counted(world, "counted") == {"chat": [1, 1, 0, 0], "twin": [4, 2, 3 * 7, 2 * 3 + 2]}


# M1 of the security review.
def test_a_chain_of_fallbacks_does_not_reach_a_model_that_the_key_forbids(world: World) -> None:
    key = world.proxy.add("limited", "chat", "twin")
    before = len(world.servers["secret"].bodies)
    with world.changed("chat", broken=500), world.twins(broken=500):
        assert [world.proxy.chat(name, key).status for name in ("chat", "twin")] == [500, 500]
    with world.twins(name="gone"):
        with world.changed("chat", broken=500):
            world.proxy.chat("chat", key)
        world.proxy.wait(lambda report: [model["healthy"] for model in report["models"]][1:3] == [False, False])
        assert world.proxy.chat("twin", key).status == 503, "its fallback is not one of the key's models"
    assert len(world.servers["secret"].bodies) == before
    recovered(world)


# M2.
def test_a_body_of_many_parts_is_refused_at_once(world: World, alice: str) -> None:
    body = b'{"model": "chat", "messages": [' + b"[]," * 7_000_000 + b"[]]}"
    times: list[float] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            times.append(alive(world))

    watcher = threading.Thread(target=look)
    watcher.start()
    before = world.proxy.memory()
    with connected(world, head(alice, len(body))) as client:
        # It is refused while it is still being sent.
        with suppress(ConnectionError):
            client.sendall(body)
        with suppress(ConnectionError):
            assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    done.set()
    watcher.join()
    assert most(times) < QUICK and world.proxy.memory() - before < 50


def test_a_body_within_the_limit_of_parts_stops_nobody(world: World, alice: str) -> None:
    body = b'{"model": "none", "messages": [' + b"[]," * (limits.MOST_MARKS // 2 - 10) + b"[]]}"
    with ThreadPoolExecutor(9) as pool:
        sent = [pool.submit(world.proxy.ask, CHAT, body, alice) for _ in range(8)]
        times = [alive(world) for _ in range(20)]
        assert [future.result().status for future in sent] == [404] * 8
    assert most(times) < QUICK


def test_large_bodies_of_many_clients_leave_room_for_others(world: World, bob: str) -> None:
    keys = [world.proxy.add(f"large-{index}") for index in range(5)]
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "x" * (60 << 20)}]}).encode()
    peak = [0]

    def send(index: int) -> int:
        with connected(world, head(keys[index % 5], len(body))) as client:
            client.settimeout(120)
            try:
                client.sendall(body)
                return int(client.recv(100).split()[1])
            except (ConnectionError, IndexError):
                # It was refused while it was still sending.
                return 503

    with ThreadPoolExecutor(20) as pool:
        sent = [pool.submit(send, index) for index in range(20)]
        times = []
        while not all(future.done() for future in sent):
            times.append(alive(world))
            assert world.proxy.chat("twin", bob).status == 200
            peak[0] = max(peak[0], world.proxy.memory())
    assert most(times) < QUICK and peak[0] < 1000, (most(times), peak)
    assert {future.result() for future in sent} <= {200, 503} and 200 in {future.result() for future in sent}
    until(lambda: world.proxy.memory() < 300, 10)


def test_a_body_that_is_too_large_is_refused_by_its_head(world: World, alice: str) -> None:
    with connected(world, head(alice, limits.MOST_BODY + 1)) as client:
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


# M3.
def test_silent_connections_stop_nobody(world: World, alice: str) -> None:
    """Without a key, from the address of other clients."""
    part = b"GET /health HTTP/1.1\r\nx: " + b"y" * 8000 + b"\r\nz: " + b"y" * 7000
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(world, part)) for _ in range(3000)]
        assert alive(world) < QUICK and world.proxy.chat("chat", alice).status == 200
        assert world.proxy.memory() < 300
        for client in clients[: 3000 - limits.MOST_OF_SOURCE - 10]:
            client.settimeout(5)
            assert ended(client), "only the newest ones are open"


def ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_silent_connections_do_not_end_requests(world: World, alice: str) -> None:
    with world.changed("chat", pause=1.0), ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        answer = pool.submit(world.proxy.chat, "chat", alice)
        until(lambda: world.servers["chat"].running == 1, 5)
        for _ in range(limits.MOST_OF_SOURCE + 50):
            stack.enter_context(connected(world))
        assert answer.result().status == 200


def test_a_head_has_a_limited_size_and_time_and_a_body_too(world: World, alice: str) -> None:
    with connected(world, b"GET /health HTTP/1.1\r\n") as client:
        for _ in range(6):
            try:
                client.sendall(b"x: " + b"y" * 7000 + b"\r\n")
                time.sleep(0.05)
            except ConnectionError:
                break
        assert ended(client)
    with connected(world, b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n") as client:
        assert client.recv(100).startswith(b"HTTP/1.0 400 ")
    began = time.monotonic()
    with connected(world, b"GET /health HTTP/1.1\r\n") as client, connected(world, asked(alice)[:-5]) as other:
        client.settimeout(40)
        other.settimeout(40)
        assert other.recv(100).startswith(b"HTTP/1.1 408 ")
        assert ended(client)
    assert time.monotonic() - began < max(limits.HEAD_SECONDS, limits.BODY_SILENCE) + 5


# L3.
def test_a_ca_is_trusted_for_its_own_cluster_only(tmp_path: Any) -> None:
    own, other = authority(), authority()
    for name, ca in (("own", own), ("other", other)):
        ca.issue("127.0.0.1").write(tmp_path, name)
    with running.closed_network(), ExitStack() as stack:
        models = []
        for name, ca, pair in (("right", own, own), ("stranger", other, own)):
            server = Backend(name)
            stack.enter_context(serve(server, pair.issue("127.0.0.1").write(tmp_path, name)))
            models.append({"name": name, "url": f"https://127.0.0.1:{server.port}/v1", "cluster": name, "ca": ca.text})
        proxy = stack.enter_context(running.started(running.planned(models), {}, tmp_path))
        key = proxy.add("alice")
        assert [proxy.chat(name, key).status for name in ("right", "stranger")] == [200, 503]
        assert proxy.report()["models"][1]["error"].startswith("its certificate is not trusted: ")


# L6.
def test_failing_requests_start_few_checks(world: World, alice: str) -> None:
    with world.changed("chat", broken=500, checks=0) as server:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            world.proxy.chat("chat", alice)
        assert 1 <= server.checks <= 3


def test_the_second_slow_check_in_a_row_takes_a_server_out(world: World, alice: str) -> None:
    """Each check times out after five seconds, and the next one follows after two."""
    with world.changed("secret", checks=0, lag=6) as server:
        checked = world.proxy.report()["models"][4]["checked"]
        with world.changed("chat", broken=500):
            world.proxy.chat("chat", alice)
        found = world.proxy.wait(lambda report: report["models"][4]["checked"] > checked)["models"][4]
        assert (found["healthy"], server.checks) == (True, 1)
        found = world.proxy.wait(lambda report: not report["models"][4]["healthy"])["models"][4]
        assert (found["error"], server.checks) == ("timed out", 2)
    recovered(world)


# The process connects to the models' servers only.
def test_a_redirect_is_not_followed(world: World, alice: str) -> None:
    with (
        serve(Backend("elsewhere")) as other,
        world.changed("chat", redirect=f"http://127.0.0.1:{other.port}/v1/chat/completions"),
    ):
        answer = ask_once(world, asked(alice))
        # A client would follow it, or take the connection for another protocol.
        assert answer.status == 502 and answer.getheader("location") is None
        assert other.bodies == []


def ask_once(world: World, sent: bytes) -> http.client.HTTPResponse:
    client = connected(world, sent)
    answer = http.client.HTTPResponse(client)
    answer.begin()
    client.close()
    return answer


def test_many_streams_at_once_are_complete(world: World, alice: str) -> None:
    def one(_index: int) -> Sequence[str]:
        answer: Answer = world.proxy.chat("twin", alice, stream=True)
        return [event["choices"][0]["delta"].get("content", "") for event in answer.events]

    with ThreadPoolExecutor(64) as pool:
        assert all(words == ["one", " two", " three", ""] for words in pool.map(one, range(200)))
