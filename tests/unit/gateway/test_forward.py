"""What passes between a client and a server, and the tokens that the server reports."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import forward
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.forward import Completions, Events, Plain, Tokens


def event(**data: Any) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def usage(completion: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 7, "total_tokens": 7 + completion, "completion_tokens": completion, **more}


WORDS = [
    event(id="c", choices=[{"delta": {"content": word}}]) for word in ("one", 'a "usage":{"x":1},"choices":[] text')
]
STREAM = [
    event(id="c", choices=[{"delta": {"content": word}}], usage=usage(index + 1))
    for index, word in enumerate(("one", "two"))
]
LAST = event(id="c", choices=[], usage=usage(2, prompt_tokens_details={"cached_tokens": 3}))
DONE = b"data: [DONE]\n\n"
PLAIN = [event(id="c", choices=[{"delta": {"content": word}}]) for word in ("one", "two")]


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
@pytest.mark.parametrize(
    ("asked", "always", "expected"),
    [(False, False, [*PLAIN, DONE]), (True, False, [*PLAIN, LAST, DONE]), (True, True, [*STREAM, LAST, DONE])],
)
def test_a_client_gets_the_usage_that_it_requested(size: int, asked: bool, always: bool, expected: list[bytes]) -> None:
    whole, reader = b"".join([*STREAM, LAST, DONE]), Completions(asked, always)
    got = b"".join(reader.feed(whole[begin : begin + size]) for begin in range(0, len(whole), size)) + reader.end()
    assert [line for line in got.split(b"\n") if line] == [line for line in b"".join(expected).split(b"\n") if line]
    assert reader.tokens == Tokens(7, 2)


def test_a_number_that_no_answer_has_is_not_counted() -> None:
    answer = b'{"usage":{"prompt_tokens":' + b"9" * 900 + b',"completion_tokens":2}}'
    assert forward.whole(answer) == Tokens(0, 2)


def test_a_dropped_event_leaves_nothing() -> None:
    reader = Completions(usage=False, always=False)
    assert reader.feed(b"".join([*STREAM, LAST, DONE])) == b"".join([*PLAIN, DONE])


def test_the_text_of_an_answer_is_no_usage() -> None:
    reader = Completions(usage=False, always=False)
    assert reader.feed(b"".join(WORDS)) == b"".join(WORDS)
    assert reader.tokens == Tokens()


def test_a_stream_that_its_client_left_counts_what_the_server_has_reported() -> None:
    reader = Completions(usage=False, always=False)
    reader.feed(STREAM[0])
    assert reader.tokens == Tokens(7, 1)


def test_an_endless_line_passes() -> None:
    reader = Completions(usage=False, always=False)
    sent = b"x" * (1 << 20)
    assert sum(len(reader.feed(sent)) for _ in range(6)) + len(reader.end()) == 6 << 20


ANTHROPIC = [
    (
        b"event: message_start\ndata: "
        b'{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}\n\n'
    ),
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"one"}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"two"}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":5}}\n\n',
]
RESPONSES = [
    b'event: response.created\ndata: {"type":"response.created","response":{"usage":null}}\n\n',
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"one"}\n\n',
    b'event: response.completed\ndata: {"type":"response.completed","response":{"tools":[{"usage":{"input_tokens":9}}],'
    b'"usage":{"input_tokens":7,"output_tokens":5}}}\n\n',
]


@pytest.mark.parametrize("size", [1, 50, 100_000])
@pytest.mark.parametrize("stream", [ANTHROPIC, RESPONSES])
def test_other_streams_report_their_usage_and_pass_unchanged(size: int, stream: list[bytes]) -> None:
    whole, reader = b"".join(stream), Events()
    assert b"".join(reader.feed(whole[begin : begin + size]) for begin in range(0, len(whole), size)) == whole
    assert reader.tokens == Tokens(7, 5)


@pytest.mark.parametrize("size", [1000, 70_000, 1 << 20])
def test_the_usage_of_an_event_with_a_long_answer_is_read_at_its_end(size: int) -> None:
    """/v1/responses ends with the whole answer. Only the end of such a line is kept."""
    answer = {"output": [{"text": "x" * 900_000}], "usage": {"input_tokens": 7, "output_tokens": 5}, "user": None}
    whole, reader = event(type="response.completed", response=answer), Events()
    for begin in range(0, len(whole), size):
        reader.feed(whole[begin : begin + size])
        assert len(reader._rest) <= 64 << 10
    assert reader.tokens == Tokens(7, 5)


def test_lines_that_are_no_data_of_an_event_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 streams of the line ,"usage":{} silenced the gateway for 16 s."""
    monkeypatch.setattr(forward.json, "loads", lambda _data: pytest.fail("a line was read"))
    data = b',"usage":{}\n' * 1000
    assert Events().feed(data) == data
    assert (forward.many(data), forward.many(LAST)) == (True, False)


@pytest.mark.parametrize(("usages", "size", "expected"), [(1000, 10_000, True), (1, 10_000, False), (100, 0, False)])
def test_only_a_long_part_with_many_usages_waits_for_its_turn(usages: int, size: int, expected: bool) -> None:
    assert forward.many(b'"usage"' * usages + b" " * size) is expected


def test_of_an_answer_only_its_usage_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answered 200 requests at once with 255 KB of small numbers silenced the gateway for 11 s."""
    read: list[int] = []

    def loads(data: bytes) -> Any:
        read.append(len(data))
        return {}

    monkeypatch.setattr(forward.json, "loads", loads)
    numbers = b"[" + b"9e-324," * 36_000 + b"0]"
    answer = (
        b'{"usage":'
        + b'{"a":[' * 99
        + b'1,"a":'
        + numbers
        + b',"usage":{"input_tokens":7},"usage":{"a":'
        + b"1" * 2000
        + b"}}"
    )
    forward.whole(answer)
    Events().feed(b"data: " + answer + b"\n")
    assert max(read, default=0) <= 1024


def test_without_a_report_each_part_of_another_stream_is_a_token() -> None:
    reader = Events()
    reader.feed(b"".join(ANTHROPIC[:3]))
    assert reader.tokens == Tokens(7, 2)


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"id": "x", "choices": [{"text": '"usage":{"prompt_tokens":1}'}], "usage": usage(3)}, Tokens(7, 3)),
        (
            {"id": "x", "usage": {"input_tokens": 7, "output_tokens": 3}, "tools": [{"usage": {"input_tokens": 1}}]},
            Tokens(7, 3),
        ),
        ({"id": "x", "usage": {"total_tokens": 10}, "results": []}, Tokens(10, 0)),
        ({"id": "x", "usage": {"prompt_tokens": True, "completion_tokens": -1}}, Tokens()),
        ({"id": "x", "usage": None}, Tokens()),
        ([], Tokens()),
    ],
)
def test_the_tokens_of_a_plain_answer(answer: Any, tokens: Tokens) -> None:
    assert forward.whole(json.dumps(answer).encode()) == tokens


@pytest.mark.parametrize("first", [True, False])
def test_the_tokens_of_a_long_answer(first: bool) -> None:
    long = {"data": [0.5] * 100_000}
    answer = (
        {"id": "x", "usage": {"total_tokens": 10}, **long}
        if first
        else {"id": "x", **long, "usage": {"prompt_tokens": 10}}
    )
    text, reader = json.dumps(answer).encode(), Plain()
    assert b"".join(reader.feed(text[begin : begin + 5000]) for begin in range(0, len(text), 5000)) == text
    assert reader.tokens == Tokens(10)


def test_a_deeply_nested_answer_has_no_tokens() -> None:
    assert forward.whole(b'{"usage":' + b"[" * 4000 + b"]" * 4000 + b"}") == Tokens()


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("/v1/chat/completions", "text/event-stream; charset=utf-8", Completions),
        ("/v1/completions", "text/event-stream", Completions),
        ("/v1/messages", "text/event-stream", Events),
        ("/v1/responses", "text/event-stream", Events),
        ("/v1/chat/completions", "application/json", Plain),
        ("/v1/messages", "", Plain),
    ],
)
def test_the_reader_of_an_answer(path: str, content: str, kind: type) -> None:
    headers = {"Content-Type": content} if content else {}
    assert type(forward.reader(path, headers, usage=False, always=False)) is kind


def test_the_headers_that_pass() -> None:
    given = {
        "Accept": "x",
        "Authorization": "Bearer client",
        "Cookie": "a",
        "anthropic-version": "1",
        "Host": "gateway",
        "x-api-key": "client",
    }
    sent = forward.request_headers(given, "key")
    assert sent == {
        "Accept": "x",
        "anthropic-version": "1",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": "Bearer key",
    }
    assert "Authorization" not in forward.request_headers(given, "")
    answer = {
        "Content-Type": "a",
        "Retry-After": "1",
        "Server": "uvicorn",
        "x-request-id": "1",
        "Set-Cookie": "a",
        "Cache-Control": "no-store",
    }
    assert forward.response_headers(answer) == {"Content-Type": "a", "Retry-After": "1", "Cache-Control": "no-store"}


@pytest.mark.parametrize("reader", [Completions(usage=False, always=False), Events()])
def test_a_part_of_a_long_line_is_added_without_a_copy_of_the_line(reader: Completions | Events) -> None:
    for part in (b"x" * 1_000_000, b"x"):
        reader.feed(part)
    tracemalloc.start()
    try:
        for _ in range(100):
            reader.feed(b"x")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_event_after_a_line_that_is_too_long_is_read() -> None:
    reader = Events()
    for part in (b"x" * 700_000, b"x" * 700_000, b"\n", b"".join(ANTHROPIC)):
        reader.feed(part)
    assert reader.tokens == Tokens(7, 5)
