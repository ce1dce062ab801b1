"""The API's guard: keys in the headers of both APIs, refusals that clients and browsers read, limits of bodies."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import types
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.api import io_connections, io_guard
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, limits

KEY = "sk-" + "0123456789abcdef" * 2
COUNT = io_guard.OPEN_REQUESTS.encode()
BEARER = {"authorization": f"Bearer {KEY}"}
LISTED = {"object": "list", "data": [{"id": "org/model", "object": "model"}]}


class Api:
    """The application behind the guard: it reads the body, and answers with the list of models."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[bytes, bytes]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.headers.append(dict(scope.get("headers", ())))
        body = b""
        while scope.get("method") == "POST":
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(LISTED).encode()})


def sent(*parts: bytes) -> list[dict[str, Any]]:
    return [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]


class Client:
    """The other side of an application: it sends messages and then nothing, and keeps what it gets."""

    def __init__(self, messages: Iterable[dict[str, Any]] = ()) -> None:
        self.waiting, self.got = list(messages), list[dict[str, Any]]()

    async def receive(self) -> dict[str, Any]:
        if not self.waiting:
            await asyncio.sleep(60)
        return self.waiting.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        self.got.append(message)


def scoped(path: str, headers: dict[str, str] | None = None, **scope: Any) -> dict[str, Any]:
    given = [(b"host", b"head"), *((name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items())]
    return {"type": "http", "method": "POST", "path": path, "headers": given, **scope}


def limited(monkeypatch: pytest.MonkeyPatch, **values: float) -> None:
    """Change limits of the guard, so that small bodies count too."""
    for name, value in {"SMALL": 0, **values}.items():
        monkeypatch.setattr(io_guard, f"_{name}", value)


def asked(
    path: str,
    headers: dict[str, str] | None = None,
    messages: Iterable[dict[str, Any]] = ({"type": "http.request", "body": b"{}"},),
    **scope: Any,
) -> tuple[Api, int, dict[str, str], Any]:
    """Return the application, and the status, headers and JSON of the answer."""
    api, client = Api(), Client(messages)
    asyncio.run(io_guard.Guard(api)(scoped(path, headers, **scope), client.receive, client.send))
    answers = client.got
    found = {name.decode(): value.decode() for name, value in answers[0].get("headers", ())}
    return api, answers[0].get("status", 0), found, json.loads(answers[1]["body"]) if len(answers) > 1 else answers[0]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    monkeypatch.setenv("VLLM_CONFIG_ROOT", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "path", ["/v1/completions", "/invocations", "/tokenize", "/pause", "/v1/models", "/", "/health/", "/metrics/x"]
)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        *(
            {"authorization": value}
            for value in ("", "Bearer", "Bearer ", "Bearer x", KEY, f"Basic {KEY}", "Bearer \xff")
        ),
        {"x-api-key": "x"},
        {"authorization": "Bearer x", "x-api-key": KEY},
    ],
)
def test_without_the_key_nothing_is_answered(path: str, headers: dict[str, str]) -> None:
    api, status, answer, body = asked(path, headers)
    assert (api.bodies, status, answer["www-authenticate"]) == ([], 401, "Bearer")
    message = "The API key is missing or wrong."
    assert body == {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
    }


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_refusal_has_the_form_of_the_path(path: str) -> None:
    assert asked(path)[3] == {
        "type": "error",
        "error": {"type": "authentication_error", "message": "The API key is missing or wrong."},
    }


@pytest.mark.parametrize(
    ("path", "headers", "status", "kind"),
    [
        ("/v1/messages", {}, 401, "authentication_error"),
        ("/v1/messages/unknown", BEARER, 404, "not_found_error"),
        ("/v1/messages", {**BEARER, "content-length": "999999999"}, 413, "request_too_large"),
        ("/v1/messages", {**BEARER, "x-request-id": "r" * 999}, 400, "invalid_request_error"),
    ],
)
def test_a_refusal_of_anthropics_api_has_its_type(path: str, headers: dict[str, str], status: int, kind: str) -> None:
    found = asked(path, headers)
    assert (found[1], found[3]["error"]["type"]) == (status, kind)


@pytest.mark.parametrize(
    ("path", "headers", "method", "closes"),
    [
        ("/v1/completions", {}, "POST", True),
        ("/metrics", {}, "POST", True),
        ("/v1/unknown", BEARER, "POST", False),
        ("/v1/models/other", BEARER, "GET", False),
    ],
)
def test_a_connection_without_a_key_ends_with_its_refusal(
    path: str, headers: dict[str, str], method: str, closes: bool
) -> None:
    """uvicorn would parse the rest of the body."""
    assert (asked(path, headers, method=method)[2].get("connection") == "close") is closes


@pytest.mark.parametrize(
    "headers",
    [
        BEARER,
        {"authorization": f"bearer  {KEY} "},
        {"x-api-key": KEY},
        {"authorization": f"Basic {KEY}", "x-api-key": KEY},
    ],
)
def test_both_headers_reach_vllm_as_the_one_that_it_reads(headers: dict[str, str]) -> None:
    api, status, _headers, _body = asked("/v1/chat/completions", headers, sent(b"a", b"", b"c"))
    assert (status, api.bodies, api.headers[0][b"authorization"]) == (200, [b"ac"], f"Bearer {KEY}".encode())


def test_health_and_preflights_need_no_key() -> None:
    assert asked("/health", method="GET")[1] == 200
    preflight = {"origin": "https://chat.example", "access-control-request-method": "POST"}
    assert asked("/v1/models", preflight, method="OPTIONS")[1] == 200
    assert asked("/metrics/", preflight, method="OPTIONS")[1] == 200
    # A route would see it: that of the metrics writes them.
    for path in ("/metrics/", "/v1/models", "/pause"):
        for headers in ({}, {"origin": "https://chat.example"}, {"access-control-request-method": "POST"}):
            assert asked(path, headers, method="OPTIONS")[1] == 401
    assert len(asked("", type="lifespan")[0].bodies) == 1
    assert asked("/v1/realtime", type="websocket")[3] == {"type": "websocket.close", "code": 1008}
    assert asked("/v1/realtime", BEARER, type="websocket")[1] == 200


@pytest.mark.parametrize(
    ("allowed", "origin", "expected"),
    [
        (["https://chat.example"], "https://chat.example", "https://chat.example"),
        (["*"], "null", "null"),
        (["https://chat.example"], "https://other.example", None),
        ([], "https://chat.example", None),
        (["https://chat.example"], None, None),
    ],
)
def test_a_page_of_an_allowed_origin_reads_the_refusal(
    allowed: list[str], origin: str | None, expected: str | None
) -> None:
    """vLLM's middleware answers preflights and adds this header to its own answers alone."""
    others = SimpleNamespace(kwargs={})
    app = SimpleNamespace(user_middleware=[others, SimpleNamespace(kwargs={"allow_origins": allowed})])
    _api, status, headers, _body = asked("/v1/models", {"origin": origin} if origin else {}, app=app)
    assert (status, headers.get("access-control-allow-origin"), headers.get("vary")) == (
        401,
        expected,
        "Origin" if expected else None,
    )


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "path",
    [
        *("/pause", "/resume", "/sleep", "/wake_up", "/collective_rpc", "/update_weights", "/v1/load_lora_adapter"),
        *("/reset_prefix_cache", "/server_info", "/start_profile", "/invocations", "/abort_requests", "/v1/unknown"),
        *(
            "/",
            "//v1/models",
            "/v1/chat/completions/../pause",
            "/docs",
            "/metrics/x",
            "/api/pause",
            "/health/",
            "/V1/models",
        ),
    ],
)
def test_only_the_head_itself_has_other_paths(path: str, kind: str) -> None:
    """uvicorn takes the address of a client from X-Forwarded-For, if it trusts the sender: by default 127.0.0.1."""
    here, scope = ("127.0.0.1", 8000), {"type": kind, "root_path": "/api"}
    for client, more in (
        (("192.168.1.9", 5), {}),
        (None, {}),
        *(
            (("127.0.0.1", 5), {name: "127.0.0.1"})
            for name in ("x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip", "via")
        ),
    ):
        api, status, _headers, body = asked(path, {**BEARER, **more}, client=client, server=here, **scope)
        assert api.bodies == []
        assert (status, body["error"]["code"]) == (404, "unknown_url") if kind == "http" else body["code"] == 1008
    for address in ("127.0.0.1", "::1", "192.168.1.11"):
        own = {"client": (address, 5), "server": (address, 8000)}
        assert asked(path, BEARER, **own, **scope)[1] == 200
        assert asked(path, {}, **own, **scope)[0].bodies == []


@pytest.mark.parametrize("root", ["", "/api"])
@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/v1/messages/count_tokens", "/v1/embeddings", "/rerank", "/score", "/tokenize"),
        *("/v1/responses/resp_1/cancel", "/version", "/v1/completions/"),
    ],
)
def test_clients_have_the_paths_of_the_api(path: str, root: str) -> None:
    found = asked(root + path, BEARER, client=("192.168.1.9", 5), server=("192.168.1.11", 8000), root_path=root)
    assert found[1] == 200


def test_a_path_for_files_takes_forms_only() -> None:
    path, form = "/v1/audio/transcriptions", {"content-type": "Multipart/form-data; boundary=x"}
    file = sent(b"\0," + b",[{:" * limits.MOST_MARKS)
    assert asked(path, {**BEARER, **form}, file)[1] == 200
    for given in ({}, {"content-type": "application/x-www-form-urlencoded"}, {"content-type": "application/json"}):
        assert asked(path, {**BEARER, **given}, [])[1] == 415


def test_a_body_that_nobody_reads_is_not_awaited() -> None:
    """Without a key, a request whose body never arrives would wait for ever."""
    assert asked("/metrics", {"content-length": "9"}, [], method="GET")[1] == 200


@pytest.mark.parametrize(
    ("path", "method"),
    [("/metrics", "POST"), ("/metrics", "OPTIONS"), ("/health", "PUT"), ("/v1/models", "M1"), ("/v1/models", "DELETE")],
)
def test_another_method_does_not_reach_vllm(path: str, method: str) -> None:
    """It keeps a series of metrics for each invented one, and writes the metrics for POST in its loop."""
    api, status, *_rest = asked(path, BEARER, [], method=method)
    assert (status, api.bodies) == (405, [])


def test_the_page_of_the_metrics_is_written_once_for_all_that_ask_at_once() -> None:
    written: list[dict[str, Any]] = []

    async def api(scope: dict[str, Any], _receive: Any, send: Any) -> None:
        written.append(scope)
        await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"page"})

    async def ask(guard: io_guard.Guard, method: str, number: int) -> bytes:
        client, headers = Client(), {"accept-encoding": "gzip", "accept": str(number)}
        await guard(scoped("/metrics", headers, method=method, query_string=b"name[]=x"), None, client.send)
        assert COUNT in dict(client.got[0]["headers"])
        return bytes(client.got[1]["body"])

    async def scenario() -> list[bytes]:
        guard = io_guard.Guard(api)
        return await asyncio.gather(*(ask(guard, method, number) for number, method in enumerate(["GET", "HEAD"] * 9)))

    assert set(asyncio.run(scenario())) == {b"page", b""}
    assert [(scope["headers"], scope["query_string"]) for scope in written] == [([], b"")]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[" + b"[]," * limits.MOST_MARKS, 413, "request_too_complex"),
        ('{"a": 1}'.encode("utf-16"), 400, "invalid_json"),
        (b'"' + "😀".encode() * (9 << 20), 413, "request_too_large"),
    ],
)
def test_a_body_that_would_grow_does_not_reach_vllm(body: bytes, status: int, code: str) -> None:
    api, found, _headers, answer = asked("/v1/chat/completions", BEARER, sent(body))
    assert (api.bodies, found, answer["error"]["code"]) == ([], status, code)
    tokens = b"[" + b"1," * (limits.MOST_TOKENS - 1)
    assert asked("/v1/embeddings", BEARER, sent(tokens))[1] == 200


class TypeAdapter:
    """Pydantic's class, for a type whose values have a type."""

    def __init__(self, annotation: object) -> None:
        assert annotation == "body"

    def validate_python(self, body: dict[str, Any]) -> None:
        if not all("type" in entry for entry in body["input"]):
            raise ValueError


@pytest.mark.parametrize(
    ("path", "entries", "status"),
    [
        ("/v1/responses", [{"type": "x"}] * 120, 200),
        ("/v1/responses", [{}] * 15, 200),
        ("/v1/responses", [{}] * 9999, 400),
        ("/v1/responses", "text", 200),
        # The application has no such route, and one takes any body.
        ("/v1/messages", [{}] * 9999, 200),
        ("/v1/completions", [{}] * 9999, 200),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_type_of_a_route_verifies_its_bodies(
    monkeypatch: pytest.MonkeyPatch, path: str, entries: Any, status: int
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", SimpleNamespace(TypeAdapter=TypeAdapter))
    typed = SimpleNamespace(
        path="/v1/responses", body_field=SimpleNamespace(field_info=SimpleNamespace(annotation="body"))
    )
    app = SimpleNamespace(routes=[SimpleNamespace(), SimpleNamespace(path="/v1/completions", body_field=None), typed])
    body = json.dumps({"model": "m", "input": entries}).encode()
    api, found, _headers, _answer = asked(path, BEARER, sent(body[:9], body[9:]), app=app)
    assert (found, api.bodies) == (status, [body] if status == 200 else [])


def test_a_body_in_single_bytes_reaches_vllm_as_one() -> None:
    body = json.dumps({"prompt": "x" * 30_000}).encode()
    began = time.process_time()
    messages = [{"type": "http.request", "body": body[at : at + 1], "more_body": True} for at in range(len(body))]
    api = asked("/v1/completions", BEARER, [*messages, {"type": "http.request", "body": b""}])[0]
    assert api.bodies == [body]
    assert time.process_time() - began < 10


@pytest.mark.parametrize("body", [b"{", b"[" * 40_000, b"[]", b"{}"], ids=["cut off", "deep", "a list", "empty"])
def test_another_body_of_responses_is_vllms(body: bytes) -> None:
    assert asked("/v1/responses", BEARER, sent(body))[0].bodies == [body]


REALTIME = scoped("/v1/realtime", BEARER, type="websocket", client=("unknown", 1))


@pytest.mark.parametrize("kind", ["text", "bytes"])
@pytest.mark.parametrize(
    "words", [["[]", "[" + "[]," * limits.MOST_MARKS, "[]"], ["[]", " " * 999, "[]"]], ids=["marks", "sum"]
)
def test_the_messages_of_a_websocket_are_limited(kind: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One message, and all of them: vLLM keeps sound until it has read it."""
    limited(monkeypatch, MOST_SOUND=1 << 20 if len(words[1]) > 999 else 500, SOUND_RATE=0, SMALL=io_guard._SMALL)
    got: list[Any] = []

    async def api(_scope: dict[str, Any], receive: Any, _send: Any) -> None:
        while not got or got[-1]["type"] != "websocket.disconnect":
            got.append(await receive())

    guard = io_guard.Guard(api)
    client = Client({"type": "websocket.receive", kind: word if kind == "text" else word.encode()} for word in words)
    asyncio.run(guard(REALTIME, client.receive, client.send))
    assert guard._budget.held == {}
    assert client.got == [{"type": "websocket.close", "code": 1009}]
    assert [message["type"] for message in got] == ["websocket.receive", "websocket.disconnect"]


def test_the_sound_of_a_websocket_stays_in_the_budget_until_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM keeps it after it has received it, and an address may open any number of websockets."""
    limited(monkeypatch, OF_CLIENT=300, SOUND_RATE=0)
    held: list[int] = []

    async def api(_scope: dict[str, Any], receive: Any, _send: Any) -> None:
        while (await receive())["type"] == "websocket.receive":
            held.append(guard._budget.held.total())

    guard, client = io_guard.Guard(api), Client([{"type": "websocket.receive", "bytes": b"x" * 50}] * 9)
    guard._budget.free = 1 << 20
    asyncio.run(guard(REALTIME, client.receive, client.send))
    assert held == [100, 200, 300]
    assert guard._budget.held == {}


def test_only_the_beginning_of_an_error_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of vLLM have the function by its name."""
    seen: list[str] = []
    names = ("vllm.planted.utils", "vllm.planted.handlers", "planted")
    for name in names:
        module = types.ModuleType(name)
        module.sanitize_message = seen.append
        monkeypatch.setitem(sys.modules, name, module)
    for _server in range(2):
        io_guard.Guard(None)
    for name in names:
        sys.modules[name].sanitize_message("/a" * 6500)
    assert [len(text) for text in seen] == [1000, 1000, 13_000]


def test_one_address_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert io_guard._OF_CLIENT < io_guard._OF_ALL
    limited(monkeypatch, OF_CLIENT=10, OF_ALL=24)

    async def scenario() -> list[int]:
        held = Held()
        waiting = [held.begin(b"abc", address) for address in ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "10.0.0.3")]
        await asyncio.sleep(0.05)
        held.may_end.set()
        await asyncio.wait(waiting)
        return held.statuses

    assert asyncio.run(scenario()) == [503, 200, 200, 200]


@pytest.mark.parametrize(("name", "status"), [("org/model", 200), ("other", 404)])
def test_one_model_is_an_entry_of_the_list(name: str, status: int) -> None:
    _api, found, _headers, body = asked(f"/v1/models/{name}", BEARER, method="GET")
    assert (found, body["id"] if status == 200 else body["error"]["code"]) == (
        status,
        name if status == 200 else "model_not_found",
    )


def test_a_large_body_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BODY", 3)
    assert asked("/v1/completions", {**BEARER, "content-length": "4"}, [])[1] == 413
    api, status, _headers, body = asked("/v1/completions", BEARER, sent(b"ab", b"cd"))
    assert (api.bodies, status, body["error"]["code"]) == ([], 413, "request_too_large")
    assert asked("/v1/completions", {**BEARER, "content-length": "3"}, sent(b"ab", b"c"))[0].bodies == [b"abc"]
    assert asked("/v1/completions", {"content-length": "4"}, [])[1] == 401
    assert asked("/v1/models", BEARER, sent(b"ab", b"cd"), method="GET")[1] == 413


def test_a_half_sent_body_ends_and_is_no_open_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SILENCE", 0.05)
    half = sent(b"{", b"}")[:1]
    api, status, _headers, body = asked("/v1/messages", BEARER, half)
    assert (api.bodies, status, body["error"]["type"]) == ([], 408, "invalid_request_error")


class Held:
    """The guard around an application whose requests, except for metrics, wait until they may end."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.may_end, self.sent, self.failure = asyncio.Event(), list[dict[str, Any]](), failure
        self.guard = io_guard.Guard(self.api)

    async def api(self, scope: dict[str, Any], _receive: Any, send: Any) -> None:
        if scope["path"] != "/metrics":
            await self.may_end.wait()
            if self.failure:
                raise self.failure
        await send({"type": "http.response.start", "status": 200})

    async def ask(self, path: str, body: bytes, address: str = "10.0.0.1") -> None:
        """Send a request. Without a body, it never arrives."""
        client = Client(sent(body) if body else ())
        client.got = self.sent
        method = "GET" if path in io_guard.OPEN else "POST"
        scope = scoped(path, BEARER, method=method, client=(address, 5))
        await self.guard(scope, client.receive, client.send)

    def begin(self, body: bytes, address: str = "10.0.0.1") -> asyncio.Task[None]:
        return asyncio.create_task(self.ask("/v1/completions", body, address))

    @property
    def statuses(self) -> list[int]:
        return [message["status"] for message in self.sent if "status" in message]


def test_the_bodies_of_all_open_requests_have_a_limit_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, OF_CLIENT=10)

    async def scenario() -> list[int]:
        held = Held()
        first = held.begin(b"abc")
        await asyncio.sleep(0.05)
        await held.begin(b"def")
        held.may_end.set()
        await first
        await held.begin(b"def")
        return held.statuses

    assert asyncio.run(scenario()) == [503, 200, 200]


def test_a_request_waits_for_the_memory_of_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1,000 tokens with one log probability.
    limited(monkeypatch, OF_CLIENT=7 << 20, ROOM_SECONDS=0.3)
    body = b'{"prompt": "hi", "max_tokens": 1000, "logprobs": 1}'

    async def scenario() -> list[int]:
        held = Held()
        first = held.begin(body)
        await asyncio.sleep(0.05)
        await held.begin(body)
        limited(monkeypatch, ROOM_SECONDS=60)
        waiting = held.begin(body)
        await asyncio.sleep(0.05)
        held.may_end.set()
        await asyncio.gather(first, waiting)
        await held.begin(body.replace(b"1000", b"2000"))
        return held.statuses

    assert asyncio.run(scenario()) == [503, 200, 200, 413]


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"x-request-id": "r" * 257}, b"{}"), ({}, b'{"user": "\\ud800"}'), ({}, b'{"user": "%257d"}')],
)
def test_a_name_without_an_end_or_with_half_of_a_character_is_refused(headers: dict[str, str], body: bytes) -> None:
    body = body.replace(b"%257d", b"u" * 257)
    given = {"authorization": f"Bearer {KEY}", **headers}
    api, status, _headers, _answer = asked("/v1/completions", given, sent(body))
    assert (api.bodies, status) == ([], 400)


@pytest.mark.parametrize("failure", [None, ConnectionResetError("the client closed")])
def test_open_requests_are_counted(failure: Exception | None) -> None:
    async def scenario() -> list[bytes]:
        held = Held(failure)
        unfinished, *requests = [held.begin(body) for body in (b"", b"{}", b"{}", b"{}")]
        await asyncio.sleep(0.05)
        await held.ask("/metrics", b"{}")
        requests[0].cancel()
        await asyncio.wait(requests[:1])
        await held.ask("/metrics", b"{}")
        held.may_end.set()
        await asyncio.wait(requests)
        assert [task.exception() for task in requests[1:]] == [failure] * 2
        await held.ask("/metrics", b"{}")
        unfinished.cancel()
        return [value for message in held.sent for name, value in message.get("headers", ()) if name == COUNT]

    assert asyncio.run(scenario()) == [b"3", b"2", b"0"]


def test_a_server_without_a_key_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY")
    with pytest.raises(KeyError):
        io_guard.Guard(Api())


def test_a_server_that_stops_takes_no_new_requests(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a file that is newer than the server counts, for its seconds."""
    now, file = 100.0, folder / io_guard.DRAIN
    monkeypatch.setattr(time, "monotonic", lambda: now)
    file.write_text("60\n", encoding="ascii")
    drain = io_guard.Drain(str(file))
    assert not drain.now()
    for text, until in (("60\n", 60), ("x", 0), ("5\n", 5)):
        io_file.write_file(str(file), text, 0o644)
        assert drain.now() is (until > 0)
        now += until
        assert not drain.now()
    io_file.write_file(str(file), "60\n", 0o644)
    assert drain.now()
    file.unlink()
    assert not drain.now()


def test_a_refusal_before_a_stop_is_read_by_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_guard.Drain, "now", lambda _drain: True)
    assert asked("/v1/completions", BEARER)[1] == asked("/health", method="GET")[1] == 503
    assert asked("/v1/messages", BEARER)[3]["error"]["type"] == "overloaded_error"
    assert asked("/v1/completions")[1] == 401
    assert asked("/metrics", method="GET")[1] == 200


def test_a_form_is_read_in_pieces_between_which_others_have_their_turn() -> None:
    """A parser of forms can take 20 s for 60 MB of lines that begin like its boundary."""
    guard = io_guard.Guard(None)
    body = b"x" * (io_guard._PIECE * 2 + 1)

    async def scenario() -> list[dict[str, Any]]:
        receive = guard._replayed(body, None, True, divided=True)
        return [await receive() for _piece in range(3)]

    found = asyncio.run(scenario())
    assert b"".join(message["body"] for message in found) == body
    assert [message["more_body"] for message in found] == [True, True, False]


def test_a_small_body_does_not_wait_for_a_large_one_that_is_parsed() -> None:
    guard = io_guard.Guard(None)

    async def scenario() -> list[bool]:
        receivers = [guard._replayed(b"body", None, large, divided=False) for large in (False, True)]
        async with guard._reading:
            tasks = [asyncio.create_task(receive()) for receive in receivers]
            await asyncio.wait(tasks, timeout=0.05)
            done = [task.done() for task in tasks]
        assert [(await task)["body"] for task in tasks] == [b"body"] * 2
        return done

    assert asyncio.run(scenario()) == [True, False]


@pytest.mark.parametrize(("lines", "status"), [(1000, 200), (1001, 400)])
def test_a_form_has_few_boundaries(lines: int, status: int) -> None:
    form = {**BEARER, "content-type": "multipart/form-data; boundary=b"}
    assert asked("/v1/audio/transcriptions", form, sent(b"\r\n--b-x" * lines))[1] == status


class Uvicorn:
    """The parts of uvicorn's connection that the limits use. A request begins with its whole head."""

    def __init__(self, *_arguments: Any) -> None:
        self.cycle: Any = None
        self.head = b""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.loop = transport, asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.head += data
        if self.head.endswith(b"\r\n\r\n"):
            self.scope, self.cycle = {"path": self.head.split()[1].decode()}, SimpleNamespace(response_complete=False)


class Wire:
    """A transport of one address, or of a Unix socket, which notes its end."""

    def __init__(self, peer: Any = ("10.0.0.1", 5)) -> None:
        self.peer, self.end, self.written = peer, "", b""
        limited: Any = type("Limited", (io_connections.Limits, Uvicorn), {})
        self.protocol = limited(SimpleNamespace())
        self.protocol.connection_made(self)

    def get_extra_info(self, _name: str) -> Any:
        return self.peer

    def get_protocol(self) -> Any:
        return self.protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"


def head(path: str, lines: int = 1) -> bytes:
    return f"GET {path} HTTP/1.1\r\n".encode() + b"a: b\r\n" * lines + b"\r\n"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each address have one connection without a request."""
    monkeypatch.setattr(io_connections, "_SOURCES", limits.Sources(1, 10))


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(("path", "stays"), [("/metrics", False), ("/health", False), ("/v1/models", True)])
def test_a_connection_with_a_request_that_needs_no_key_makes_room(path: str, stays: bool) -> None:
    """Its client may take nothing of the answer: 5 addresses kept all places so."""

    async def scenario() -> list[str]:
        first = Wire()
        first.protocol.parse(head(path))
        second = Wire()
        return [first.end, second.end]

    assert asyncio.run(scenario()) == (["", "aborted"] if stays else ["aborted", ""])


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(
    ("peers", "ends"),
    [
        ([("10.0.0.1", 5), ("10.0.0.2", 5), ("fd00::1", 5, 0, 0)], ["", "", ""]),
        ([("10.0.0.1", 5), ("10.0.0.1", 6), ("::ffff:10.0.0.1", 7, 0, 0)], ["aborted", "aborted", ""]),
        # All of a Unix socket are one source.
        (["", "", ("10.0.0.1", 5)], ["aborted", "", ""]),
        ([None, ("10.0.0.1", 5)], ["", ""]),
    ],
)
def test_an_address_takes_no_place_of_another_one(peers: list[Any], ends: list[str]) -> None:
    async def scenario() -> list[str]:
        return [wire.end for wire in [Wire(peer) for peer in peers]]

    assert asyncio.run(scenario()) == ends


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(
    ("lines", "step", "refused"),
    [
        (limits.MOST_HEADERS, 1 << 20, False),
        (limits.MOST_HEADERS + 1, 1 << 20, True),
        (limits.MOST_HEADERS - 1, 7, False),
        (limits.MOST_HEADERS + 1, 7, True),
    ],
)
def test_a_head_has_few_lines(lines: int, step: int, refused: bool) -> None:
    async def scenario() -> None:
        wire, data = Wire(), head("/v1/models", lines)
        for _request in range(2):
            for begin in range(0, len(data), step):
                if not wire.end:
                    wire.protocol.parse(data[begin : begin + step])
            assert (wire.end, wire.written[9:12]) == (("closed", b"431") if refused else ("", b""))
            wire.protocol.cycle, wire.protocol.head = None, b""

    asyncio.run(scenario())


@pytest.mark.usefixtures("places")
def test_a_connection_has_some_seconds_for_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.05)

    async def scenario() -> list[str]:
        silent, slow, busy = (Wire((f"10.0.0.{number}", 5)) for number in range(3))
        slow.protocol.parse(head("/v1/models")[:-1])
        busy.protocol.parse(head("/v1/models"))
        await asyncio.sleep(0.5)
        return [wire.end for wire in (silent, slow, busy)]

    assert asyncio.run(scenario()) == ["closed", "closed", ""]
