"""Real clients at the API's guard and at the gateway, in front of an imitated vLLM or of a server of yours."""

from __future__ import annotations

import json
import time
import urllib.error
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from clients.doors import PROGRAMS, Door, opened
from clients.raw import Browser

CLIENTS = (*PROGRAMS, "curl", "browser")
ANTHROPIC = ("anthropic", "anthropic-0.52")
#: The clients whose library has /v1/responses.
RESPONSES = ("openai", "openai-async", "langchain", "node")
#: A test also runs at servers with TLS of a private CA.
WITH_TLS = pytest.mark.doors("guard", "gateway", "guard-tls", "gateway-tls")
#: Seconds until the engine has ended a request whose client left, and until the gateway has counted one.
SOON = 1.0
#: Errors of clients that leave, after a second.
LEFT = ("APITimeoutError", "OpenAITimeoutError", "APIConnectionTimeoutError", "exit status 28", "AbortError")
#: Errors of the tests' programs for a model that calls no tool, or whose JSON has no end.
OF_MODELS = ("TypeError", "IndexError", "StopIteration", "RuntimeError", "JSONDecodeError", "SyntaxError", "KeyError")
#: Errors of clients that do not trust the server's certificate.
UNTRUSTED = ("APIConnectionError", "OpenAIConnectionError", "exit status 60")


def each(*without: str, only: Sequence[str] = CLIENTS) -> pytest.MarkDecorator:
    """Run a test with each client."""
    return pytest.mark.parametrize("client", [name for name in only if name not in without], indirect=True)


def says(door: Door, text: str) -> bool:
    """Return whether this is the text of the imitated server, or any text of another one, whose model may begin with
    the end."""
    return text == "one two three" if door.known else isinstance(text, str)


def counts(door: Door, usage: list[int]) -> bool:
    return usage == [7, 3] if door.known else all(count > 0 for count in usage)


def done(door: Door, found: Any) -> Any:
    """Return the client's result. Skips the test if a model of yours cannot do it: its server and its client worked."""
    if not door.known and "error" in found and ("tool-call-parser" in found["message"] or found["error"] in OF_MODELS):
        pytest.skip(f"not done by this model: {found['error']}: {found['message'][:150]}")
    return found


@WITH_TLS
@each()
@pytest.mark.parametrize("case", ["plain", "stream"])
def test_an_answer_and_its_usage(door: Door, client: Any, case: str) -> None:
    found = client.ask(case)
    assert says(door, found["text"]) and counts(door, found["usage"]) and found.get("parts", 2) > 1, found


@each(only=RESPONSES)
@pytest.mark.parametrize("case", ["responses", "responses_stream"])
def test_an_answer_of_responses_and_its_usage(door: Door, client: Any, case: str) -> None:
    found = client.ask(case)
    assert says(door, found["text"]) and counts(door, found["usage"]) and found.get("parts", 2) > 1, found


@pytest.mark.doors("gateway")
@each()
def test_the_gateway_counts_what_the_client_sees(door: Door, client: Any) -> None:
    if not door.known:
        pytest.skip("the counts of a server of yours are not known")
    cases = ["plain", "stream", *(["responses", "responses_stream"] if client.name in RESPONSES else [])]
    before = Counter(door.counts())
    usage = [client.ask(case)["usage"] for case in cases]
    seen = {
        "requests": len(cases),
        "prompt_tokens": sum(prompt for prompt, _ in usage),
        "completion_tokens": sum(count for _, count in usage),
    }
    until = time.monotonic() + SOON
    # A client may see the end of a stream before the gateway does.
    while (found := Counter(door.counts()) - before) != seen and time.monotonic() < until:
        time.sleep(0.02)
    assert found == seen


@each()
def test_a_tool_is_called_and_its_result_answered(door: Door, client: Any) -> None:
    found = done(door, client.ask("tools"))
    assert found["tool"] == "weather" and list(found["arguments"]) == ["city"] and says(door, found["text"]), found


@each()
def test_a_stream_that_calls_a_tool(door: Door, client: Any) -> None:
    found = done(door, client.ask("tools_stream"))
    assert (
        found == {"tool": "weather", "arguments": {"city": "Paris"}}
        if door.known
        else list(found["arguments"]) == ["city"]
    ), found


# The old version has no parameter for it.
@each("anthropic-0.52")
def test_an_answer_with_a_json_schema(door: Door, client: Any) -> None:
    found = done(door, client.ask("schema"))
    assert {name: type(value) for name, value in found["data"].items()} == {"city": str, "people": int}, found


@each("langchain")
def test_the_list_of_models_and_one_of_them(door: Door, client: Any) -> None:
    found = client.ask("models")
    assert door.model in found["models"] and found["one"] == door.model, found


@pytest.mark.usefixtures("door")
@each(only=ANTHROPIC)
def test_tokens_are_counted(client: Any) -> None:
    assert client.ask("count")["usage"][0] > 0


@each()
@pytest.mark.parametrize("case", ["leave", "leave_plain"])
def test_the_engine_ends_the_request_of_a_client_that_leaves(door: Door, client: Any, case: str) -> None:
    if not door.engine:
        pytest.skip("the server shows no metrics of vLLM")
    before = door.running()
    found = client.ask(case)
    if not door.known and not found.keys() & {"error", "left"}:
        pytest.skip("the model answered before the client left")
    left = time.monotonic()
    while door.running() > before:
        assert time.monotonic() - left < SOON, f"{door.running()} requests run"
        time.sleep(0.02)
    # The client received no whole answer, which would take a minute.
    assert found.get("left") or found["error"] in LEFT, found


@WITH_TLS
@each()
def test_a_wrong_key_and_then_the_right_one(door: Door, client: Any) -> None:
    found = client.ask("wrong_key")
    assert found["status"] == 401 and "key" in found["message"], found
    error = found["body"].get("error", found["body"])
    # Each API's own form. Anthropic's errors have no code.
    assert (
        (error["type"] == "authentication_error") if client.name in ANTHROPIC else (error["code"] == "invalid_api_key")
    ), found
    assert says(door, client.ask("plain")["text"])


# The browser gets no CA, but the digest of the server's key.
@pytest.mark.doors("gateway-tls")
@pytest.mark.parametrize("name", [*PROGRAMS, "curl"])
def test_a_client_without_the_ca_sends_nothing(door: Door, name: str) -> None:
    if not door.known:
        pytest.skip("only a private CA of the tests can be left out")
    with replace(door, ca="", programs={}).clients() as stranger:
        client = stranger.curl() if name == "curl" else stranger.program(name)
        found = client.ask("plain")
    assert found.get("error") in UNTRUSTED, found


@each(*ANTHROPIC)
def test_embeddings_of_a_model_that_makes_none(door: Door, client: Any) -> None:
    found = client.ask("embeddings")
    assert found["status"] in (400, 404), found
    assert says(door, client.ask("plain")["text"])


@each()
def test_an_unknown_model_and_then_the_right_one(door: Door, client: Any) -> None:
    found = client.ask("unknown_model")
    assert found["status"] == 404 and "unknown" in found["message"] and "does not exist" in found["message"], found
    assert says(door, client.ask("plain")["text"])


def test_a_page_of_another_origin_sees_nothing(door: Door, browsers: list[Browser]) -> None:
    other = browsers[1]
    assert not door.allows(other.origin)
    assert door.raw(other).ask("plain")["error"] == "TypeError"


@pytest.mark.doors("guard")
@pytest.mark.parametrize(
    ("headers", "here"),
    [({}, True), *(({"X-Forwarded-For": address}, False) for address in ("127.0.0.1", "::1", "192.168.1.9", "x"))],
)
def test_only_the_head_itself_reaches_other_paths(door: Door, headers: dict[str, str], here: bool) -> None:
    """The server trusts this header of 127.0.0.1, and takes the client's address from it."""
    if not door.known:
        pytest.skip("only for servers of these tests")
    with pytest.raises(urllib.error.HTTPError) as error:
        opened(f"{door.url}/pause", {"Authorization": f"Bearer {door.key}", **headers}, "POST")
    assert error.value.status == 404
    answer = json.loads(error.value.read())
    assert answer == {"detail": "Not Found"} if here else answer["error"]["code"] == "unknown_url"
