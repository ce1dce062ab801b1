"""The decision about each request: its key, model, fallback, and the body for LiteLLM."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import requests
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.clients import Client
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.requests import Accepted, Gateway, Refusal

GATEWAY = Gateway({"big": ["n/big", "s/big"], "small": ["s/small"], "vector": ["n/vector"]}, {"small": ["big"]}, 15)
ALL, SMALL = Client("", 0), Client("", 0, ("small",))


def accept(body: Any, client: Client | None = ALL, errors: Any = None, path: str = "/v1/chat/completions") -> Accepted | Refusal:
    return requests.accept(GATEWAY, path, json.dumps(body).encode(), client, errors or {}, lambda name: name == "metadata")


def sent(body: Any, *arguments: Any) -> Any:
    found = accept(body, *arguments)
    assert isinstance(found, Accepted)
    return json.loads(found.body)


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ([], ""),
        ([(b"authorization", b"Bearer sk-1")], "sk-1"),
        ([(b"Authorization", b"bearer  sk-1 ")], "sk-1"),
        ([(b"authorization", b"Basic sk-1")], ""),
        ([(b"x-api-key", b"sk-2")], "sk-2"),
        ([(b"authorization", b"Bearer sk-1"), (b"x-api-key", b"sk-2")], "sk-1"),
        ([(b"x-litellm-api-key", b"sk-3")], ""),
        ([(b"authorization", b"Bearer \xff")], "\udcff"),
    ],
)
def test_the_key_of_a_request(headers: list[tuple[bytes, bytes]], key: str) -> None:
    assert requests.key_of(headers) == key


def test_fields_that_control_litellm_do_not_reach_it() -> None:
    given = {"model": "small", "messages": [], "top_k": 5, "metadata": {}, "fallbacks": ["big"], "mock_response": "x", "api_base": "x", "_x": 1}
    assert sent(given) == {"model": "small", "messages": [], "top_k": 5}


def test_a_stream_of_completions_requests_its_usage() -> None:
    body = {"model": "small", "prompt": "x", "stream": True, "stream_options": {"include_usage": False, "x": 1}}
    assert sent(body, ALL, {}, "/v1/completions")["stream_options"] == {"include_usage": True, "x": 1}
    assert sent(body)["stream_options"] == body["stream_options"], "for chats LiteLLM does it"


def test_a_client_gets_its_models_only() -> None:
    assert sent({"model": "small"}, SMALL) == {"model": "small", "disable_fallbacks": True}
    found = accept({"model": "big"}, SMALL)
    assert isinstance(found, Refusal) and found.status == 404 and "big" in found.message and "vector" not in found.message
    unknown = accept({"model": "none"}, SMALL)
    assert isinstance(unknown, Refusal) and unknown.message == found.message.replace("big", "none")
    assert sent({"model": "big"}, None) == {"model": "big"}


def test_a_replica_or_a_fallback_answers_for_a_dead_server() -> None:
    assert sent({"model": "big"}, ALL, {"n/big": "refused"}) == {"model": "big"}
    found = accept({"model": "small"}, ALL, {"s/small": "refused"})
    assert isinstance(found, Accepted) and (found.model, found.target, json.loads(found.body)) == ("small", "big", {"model": "big"})


@pytest.mark.parametrize(("client", "errors"), [(SMALL, {"s/small": "refused"}), (ALL, {"s/small": "refused", "n/big": "x", "s/big": "y"})])
def test_without_a_server_the_reason_is_the_answer(client: Client, errors: dict[str, str]) -> None:
    found = accept({"model": "small"}, client, errors)
    assert isinstance(found, Refusal) and (found.status, found.code, found.retry) == (503, "model_unavailable", 15)
    assert "s/small: refused" in found.message


def test_refusals_have_the_format_of_their_api() -> None:
    assert json.loads(requests.refusal_body(requests.UNKNOWN_KEY, "/v1/chat/completions"))["error"]["code"] == "invalid_api_key"
    for path in ("/v1/messages", "/messages", "/v1/messages/count_tokens"):
        assert json.loads(requests.refusal_body(requests.UNKNOWN_KEY, path))["error"]["type"] == "authentication_error"


def test_the_list_of_models_has_each_name_once() -> None:
    contexts = (("big", "n", 8), ("big", "s", 4), ("small", "s", 0))
    entries = [{"name": name, "cluster": cluster, "context": context} for name, cluster, context in contexts]
    rows = json.loads(requests.listing(entries, ALL))["data"]
    assert [(row["id"], row.get("max_model_len")) for row in rows] == [("big", 4), ("small", None)]
    assert [row["id"] for row in json.loads(requests.listing(entries, SMALL))["data"]] == ["small"]
