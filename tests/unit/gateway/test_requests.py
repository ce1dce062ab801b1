"""The decision about each request: its key, model, path, servers, and the body for the server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import requests
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.clients import Client
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.requests import Accepted, Gateway, Refusal, Servers

GATEWAY = Gateway(
    {"big": ["n/big", "s/big"], "small": ["s/small"], "vector": ["n/vector"], "order": ["n/order"]},
    {"big": "generate", "small": "generate", "vector": "embed", "order": "rerank"},
    {"small": ["big"]},
    15,
)
ALL, SMALL = Client("", 0), Client("", 0, ("small",))
CHAT = "/v1/chat/completions"


def accept(
    body: Any, client: Client | None = ALL, servers: Servers | None = None, path: str = CHAT, gateway: Gateway = GATEWAY
) -> Accepted | Refusal:
    given = requests.parsed(json.dumps(body).encode())
    return requests.accept(gateway, requests.ROUTES[path], given, client, servers or Servers())


def accepted(body: Any, *arguments: Any) -> Accepted:
    found = accept(body, *arguments)
    assert isinstance(found, Accepted), found
    return found


def refused(body: Any, *arguments: Any) -> Refusal:
    found = accept(body, *arguments)
    assert isinstance(found, Refusal), found
    return found


def down(**errors: str) -> Servers:
    return Servers({name.replace("_", "/"): reason for name, reason in errors.items()})


def test_a_model_that_may_rest_is_no_refusal() -> None:
    resting = replace(GATEWAY, wakes={"n/big", "s/big"})
    found = accepted({"model": "big"}, ALL, down(n_big="refused", s_big="refused"), CHAT, resting)
    assert (found.targets, found.resting, found.named) == ([], {"n/big": "refused", "s/big": "refused"}, "big")
    # A replica or a fallback answers meanwhile, and a fallback's own rest is not this model's.
    one = accepted({"model": "big"}, ALL, down(n_big="refused"), CHAT, resting)
    assert ([target.id for target in one.targets], one.resting) == (["s/big"], {"n/big": "refused"})
    small = refused({"model": "small"}, ALL, down(s_small="x", n_big="x", s_big="x"), CHAT, resting)
    assert small.status == 503
    assert accepted({"model": "big"}, ALL, down(n_big="x"), CHAT, GATEWAY).resting == {}


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({}, ""),
        ({"Authorization": "Bearer sk-1"}, "sk-1"),
        ({"Authorization": "bearer  sk-1 "}, "sk-1"),
        ({"Authorization": "Basic sk-1"}, ""),
        ({"x-api-key": "sk-2"}, "sk-2"),
        ({"Authorization": "Bearer sk-1", "x-api-key": "sk-2"}, "sk-1"),
        ({"Authorization": "Basic sk-1", "x-api-key": "sk-2"}, "sk-2"),
        ({"x-litellm-api-key": "sk-3"}, ""),
        ({"Authorization": "Bearer \udcff"}, "\udcff"),
    ],
)
def test_the_key_of_a_request(headers: dict[str, str], key: str) -> None:
    assert requests.key_of(headers) == key


def test_the_server_gets_each_field_of_the_client() -> None:
    given = {"model": "small", "messages": [], "top_k": 5, "metadata": {}, "user": "x", "priority": 1, "stream": False}
    assert json.loads(accepted(given).body) == given
    # A server cannot read another one of two fields with the same name.
    twice = b'{"model": "big", "user": 1, "user": 2, "model": "small"}'
    found = requests.accept(GATEWAY, requests.ROUTES[CHAT], requests.parsed(twice), SMALL, Servers())
    assert isinstance(found, Accepted) and found.body == b'{"model":"small","user":2}'


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("é你😀".encode(), "é你😀".encode()),
        (rb"\ud83d\ude00\u4f60\u0000", "😀你\\u0000".encode()),
        (rb"\ud83d", rb"\ud83d"),
        (b"\xed\xa0\xbd\xed\xb8\x80", rb"\ud83d\ude00"),
        (rb"\\ud83d\\\ude00", rb"\\ud83d\\\ude00"),
    ],
)
def test_a_text_needs_as_many_bytes_as_before(given: bytes, sent: bytes) -> None:
    """A half of a character has no bytes in UTF-8, and stays an escape. Both halves are the character again."""
    found = requests.accept(
        GATEWAY, requests.ROUTES[CHAT], requests.parsed(b'{"model":"small","user":"%b"}' % given), ALL, Servers()
    )
    assert isinstance(found, Accepted) and found.body == b'{"model":"small","user":"%b"}' % sent
    assert json.loads(found.body) == json.loads(found.body.decode())


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize(
    ("options", "usage", "always"),
    [
        (None, False, False),
        ({"include_usage": False, "x": 1}, False, False),
        ({"include_usage": True}, True, False),
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
    ],
)
def test_a_stream_of_completions_reports_its_usage_in_each_event(
    path: str, options: Any, usage: bool, always: bool
) -> None:
    found = accepted(
        {"model": "small", "stream": True} | ({"stream_options": options} if options else {}), ALL, None, path
    )
    assert json.loads(found.body)["stream_options"] == {
        **(options or {}),
        "include_usage": True,
        "continuous_usage_stats": True,
    }
    assert (found.usage, found.usage_always) == (usage, always)


@pytest.mark.parametrize(("path", "stream"), [("/v1/messages", True), ("/v1/responses", True), (CHAT, False)])
def test_other_requests_stay_as_they_are(path: str, stream: bool) -> None:
    assert "stream_options" not in json.loads(accepted({"model": "small", "stream": stream}, ALL, None, path).body)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"[]", "missing_model"),
        (b'{"model": ["small"]}', "missing_model"),
        # The server would take the text true, and send a stream whose tokens are not counted.
        (b'{"model": "small", "stream": "true"}', "invalid_stream"),
        (b'{"model": "small", "stream": 1}', "invalid_stream"),
        (b'{"model": "small", "stream": [true]}', "invalid_stream"),
    ],
)
def test_a_body_that_is_not_a_request(body: bytes, code: str) -> None:
    found = requests.accept(GATEWAY, requests.ROUTES[CHAT], requests.parsed(body), ALL, Servers())
    assert isinstance(found, Refusal) and (found.status, found.code) == (400, code)


def test_a_stream_may_be_null() -> None:
    assert accepted({"model": "small", "stream": None}).model == "small"


def test_a_client_gets_its_models_only() -> None:
    assert [target.id for target in accepted({"model": "small"}, SMALL).targets] == ["s/small"]
    found, unknown = refused({"model": "big"}, SMALL), refused({"model": "none"}, SMALL)
    assert found.status == 404 and "big" in found.message and "vector" not in found.message
    assert unknown.message == found.message.replace("big", "none")
    assert accepted({"model": "big"}, None).model == "big"


@pytest.mark.parametrize(
    ("model", "path", "sentence"),
    [
        (
            "small",
            "/v1/embeddings",
            "'small' generates text, so it does not have this path. Its paths: /v1/chat/completions, /v1/completions,",
        ),
        ("small", "/v1/rerank", "generates text"),
        (
            "vector",
            CHAT,
            (
                "The model 'vector' makes embeddings, so it does not have this path. Its paths: /v1/embeddings, "
                "/v1/rerank."
            ),
        ),
        (
            "order",
            "/v1/embeddings",
            "The model 'order' ranks texts, so it does not have this path. Its paths: /v1/rerank.",
        ),
    ],
)
def test_a_path_that_the_kind_of_the_model_does_not_have(model: str, path: str, sentence: str) -> None:
    found = refused({"model": model}, ALL, None, path)
    assert (found.status, found.code) == (400, "wrong_path") and sentence in found.message


def test_an_embedding_model_also_compares_texts() -> None:
    assert accepted({"model": "vector"}, ALL, None, "/v2/rerank").model == "vector"


def test_a_replica_or_a_fallback_answers_for_a_dead_server() -> None:
    assert [target.id for target in accepted({"model": "big"}, ALL, down(n_big="refused")).targets] == ["s/big"]
    found = accepted({"model": "small"}, ALL, down(s_small="refused"))
    assert (found.model, found.targets[0].model, json.loads(found.body)) == ("small", "big", {"model": "big"})


def test_the_replica_with_fewest_requests_is_first() -> None:
    busy = accepted({"model": "big"}, ALL, Servers(busy={"n/big": 2, "s/big": 1})).targets
    turns = [accepted({"model": "big"}, ALL, Servers(turn=turn)).targets for turn in (1, 2)]
    orders = [[target.id for target in targets] for targets in (busy, *turns)]
    assert orders == [["s/big", "n/big"], ["s/big", "n/big"], ["n/big", "s/big"]], "equal ones take turns"


def test_a_chain_of_fallbacks_never_leaves_the_models_of_the_key() -> None:
    """M1: beta's own fallback is not one of alpha's, with any key."""
    names = ("alpha", "beta", "secret")
    gateway = Gateway(
        {name: [f"c/{name}"] for name in names},
        dict.fromkeys(names, "generate"),
        {"alpha": ["beta"], "beta": ["secret"]},
        15,
    )
    client = Client("", 0, ("alpha", "beta"))
    found = accept({"model": "alpha"}, client, None, CHAT, gateway)
    assert isinstance(found, Accepted) and [target.model for target in found.targets] == ["alpha", "beta"]
    assert isinstance(accept({"model": "alpha"}, client, down(c_alpha="x", c_beta="x"), CHAT, gateway), Refusal)
    assert isinstance(accept({"model": "beta"}, client, down(c_beta="x"), CHAT, gateway), Refusal)


@pytest.mark.parametrize(
    ("client", "servers"), [(SMALL, down(s_small="refused")), (ALL, down(s_small="refused", n_big="x", s_big="y"))]
)
def test_without_a_server_the_reason_is_the_answer(client: Client, servers: Servers) -> None:
    found = refused({"model": "small"}, client, servers)
    assert (found.status, found.code, found.retry, found.model) == (503, "model_unavailable", 15, "small")
    assert "s/small: refused" in found.message


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (requests.UNKNOWN_KEY, 401),
        (requests.FORBIDDEN, 403),
        (requests.UNKNOWN_ROUTE, 404),
        (requests.ENCODED, 415),
        (requests.NOT_HTTP, 400),
        (requests.BROKEN, 502),
        (requests.FAILED, 500),
    ],
)
def test_a_client_learns_whose_mistake_it_is(refusal: Refusal, status: int) -> None:
    assert refusal.status == status
    assert (refusal.kind == "server_error") is (status >= 500)


def test_a_silent_server_is_a_timeout() -> None:
    found = requests.silent("big", 600)
    assert (found.status, found.code, found.model) == (504, "timeout", "big")
    assert found.message == "The model's server sent nothing for 600 s."


def test_refusals_have_the_format_of_their_api() -> None:
    assert json.loads(requests.refusal_body(requests.UNKNOWN_KEY, CHAT))["error"]["code"] == "invalid_api_key"
    for path in ("/v1/messages", "/messages", "/v1/messages/count_tokens"):
        assert json.loads(requests.refusal_body(requests.UNKNOWN_KEY, path))["error"]["type"] == "authentication_error"
    assert requests.refusal_event(requests.BROKEN, "/v1/messages").startswith(b'event: error\ndata: {"type": "error"')
    assert requests.refusal_event(requests.BROKEN, CHAT).startswith(b'data: {"error"')


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_anthropics_clients_know_the_type_of_an_error(status: int, kind: str) -> None:
    refusal = Refusal(status, "invalid_request_error", "x", "a message")
    error = {"type": kind, "message": "a message"}
    assert json.loads(requests.refusal_body(refusal, "/v1/messages")) == {"type": "error", "error": error}


@pytest.mark.parametrize(
    ("code", "status", "kind", "retry"),
    [(limits.FULL, 503, "server_error", 5), (limits.LARGE, 413, "invalid_request_error", 0)],
)
def test_a_body_without_room_may_come_again_and_a_large_one_not(code: str, status: int, kind: str, retry: int) -> None:
    found = requests.of_body(code)
    assert (found.status, found.kind, found.code, found.retry) == (status, kind, code, retry)


@pytest.mark.parametrize(
    ("refusal", "headers"),
    [
        # The official clients repeat a 504 twice, unless this header says no.
        (requests.silent("big", 600), {"x-should-retry": "false"}),
        (requests.UNKNOWN_KEY, {"WWW-Authenticate": "Bearer"}),
        (requests.of_body(limits.FULL), {"Retry-After": "5"}),
        (requests.BROKEN, {}),
    ],
)
def test_the_headers_of_a_refusal(refusal: Refusal, headers: dict[str, str]) -> None:
    assert requests.refusal_headers(refusal) == headers


def test_the_list_of_models_has_each_name_once() -> None:
    contexts = (("org/big", "n", 8), ("org/big", "s", 4), ("small", "s", 0))
    entries = [{"name": name, "cluster": cluster, "context": context} for name, cluster, context in contexts]
    rows = requests.listing(entries, ALL)
    answer = requests.listed(rows, "/v1/models")
    assert isinstance(answer, bytes)
    assert [(row["id"], row.get("max_model_len")) for row in json.loads(answer)["data"]] == [
        ("org/big", 4),
        ("small", None),
    ]
    one = requests.listed(rows, "/models/org/big")
    assert isinstance(one, bytes) and json.loads(one) == rows["org/big"]
    assert list(requests.listing(entries, SMALL)) == ["small"]
    hidden = requests.listed(requests.listing(entries, SMALL), "/v1/models/org/big")
    assert isinstance(hidden, Refusal) and hidden.code == "model_not_found"
    assert requests.listed(rows, "/v1/other") is None


def test_only_listed_origins_share_an_answer() -> None:
    page = {"Origin": "https://chat.example.com"}
    expected = {
        "Access-Control-Allow-Origin": "https://chat.example.com",
        "Access-Control-Expose-Headers": "Retry-After, X-Gb10-Fallback-For",
        "Vary": "Origin",
    }
    assert requests.shared(page, ["https://chat.example.com"]) == requests.shared(page, ["*"]) == expected
    assert requests.shared(page, ["https://chat.example.org"]) == requests.shared({}, ["*"]) == {}


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("authorization,x-stainless-os", "authorization,x-stainless-os"),
        ("x-stainless-os\r\nX: 1", "authorization, content-type, x-api-key"),
        (",".join(["x-stainless-os"] * 100), "authorization, content-type, x-api-key"),
    ],
)
def test_a_preflight_allows_the_headers_that_it_names(asked: str, allowed: str) -> None:
    answer = requests.preflight({"Access-Control-Request-Headers": asked})
    assert answer["Access-Control-Allow-Headers"] == allowed


@pytest.mark.parametrize(("turn", "order"), [(0, "abc"), (1, "cab"), (2, "bca"), (3, "abc"), (7, "cab")])
def test_three_equal_replicas_take_turns(turn: int, order: str) -> None:
    gateway = Gateway({"big": list("abc")}, {"big": "generate"}, {}, 15)
    found = accept({"model": "big"}, ALL, Servers(turn=turn), CHAT, gateway)
    assert isinstance(found, Accepted) and "".join(target.id for target in found.targets) == order
    busy = accept({"model": "big"}, ALL, Servers(busy={"a": 1}, errors={"b": "x"}), CHAT, gateway)
    assert isinstance(busy, Accepted) and [target.id for target in busy.targets] == ["c", "a"]


def test_a_row_of_the_list_is_openais_with_the_least_context() -> None:
    entries = [
        {"name": "big", "cluster": cluster, "context": context} for cluster, context in (("n", 0), ("s", 8), ("o", 9))
    ]
    row = {"id": "big", "object": "model", "created": 0, "owned_by": "n", "max_model_len": 8}
    assert requests.listing(entries, None) == {"big": row}


@pytest.mark.parametrize(("length", "kept"), [(1000, True), (1001, False)])
def test_the_headers_of_a_preflight_have_a_limit(length: int, kept: bool) -> None:
    answer = requests.preflight({"Access-Control-Request-Headers": f" {'x' * length} "})
    assert (answer["Access-Control-Allow-Headers"] == "x" * length) is kept
    assert (answer["Access-Control-Allow-Methods"], answer["Access-Control-Max-Age"]) == ("GET, POST", "600")


def test_a_long_name_of_a_model_is_not_repeated_as_a_whole() -> None:
    assert f"The model '{'x' * 200}' does not exist" in refused({"model": "x" * 300}).message


@pytest.mark.parametrize("options", [[], "x", 5])
def test_options_of_a_stream_that_are_none_stay_for_the_server(options: Any) -> None:
    """vLLM refuses them, so the answer is no stream whose usage could be cut."""
    found = accepted({"model": "small", "stream": True, "stream_options": options})
    assert json.loads(found.body)["stream_options"] == options and found.usage and found.usage_always


def test_the_usage_of_a_stream_is_hidden_unless_the_client_asked() -> None:
    found = accepted({"model": "small", "stream": True, "stream_options": {"continuous_usage_stats": True}})
    assert (found.usage, found.usage_always) == (False, False)
    other = accepted({"model": "small"})
    assert (other.usage, other.usage_always) == (True, True), "nothing is added, so nothing is hidden"


def test_a_refusal_is_written_as_openai_does() -> None:
    error = {"message": "m", "type": "k", "param": None, "code": "c"}
    assert json.loads(requests.refusal_body(Refusal(400, "k", "c", "m"), CHAT)) == {"error": error}
    assert requests.refusal_headers(Refusal(400, "k", "c", "m")) == {}
    assert requests.refusal_headers(Refusal(503, "k", "c", "m", 1)) == {"Retry-After": "1"}
