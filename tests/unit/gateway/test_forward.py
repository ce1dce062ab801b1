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


@pytest.mark.parametrize(
    ("reported", "tokens"),
    [
        ({"prompt_tokens": 0, "input_tokens": 5, "completion_tokens": 1 << 40}, Tokens(0, 1 << 40)),
        ({"prompt_tokens": (1 << 40) + 1, "input_tokens": 5}, Tokens(5, 0)),
        ({"prompt_tokens": -1, "total_tokens": 6, "output_tokens": 1.5}, Tokens(6, 0)),
        ([1], Tokens()),
    ],
)
def test_the_first_number_that_an_answer_can_have_counts(reported: Any, tokens: Tokens) -> None:
    assert forward.tokens_of(reported) == tokens


@pytest.mark.parametrize(("size", "usages", "expected"), [(8193, 51, True), (8192, 51, False), (8193, 50, False)])
def test_a_part_with_many_usages_has_its_limits(size: int, usages: int, expected: bool) -> None:
    assert forward.many((b'"usage"' * usages).ljust(size)) is expected


FIRST, SECOND = b',"usage":{"total_tokens":4}', b',"usage":{"total_tokens":5}'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (FIRST.rjust(8192) + b" " * 9000, 4),
        (FIRST.rjust(8193) + b" " * 9000, 0),
        (b" " * 9000 + FIRST.ljust(8192), 4),
        (b" " * 9000 + FIRST.ljust(8193), 0),
        (FIRST + b" " * 9000 + FIRST + SECOND, 5),
        (FIRST + SECOND + b" " * 9000, 4),
        (b" " * 9000 + b'{"usage":{"total_tokens":6}', 6),
        (b" " * 9000 + b',"usage":{"a":{"b":1},"total_tokens":7' + b" " * 985 + b"}", 7),
        (b" " * 9000 + b',"usage":{"a":{"b":1},"total_tokens":7' + b" " * 997 + b"}", 0),
    ],
)
@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_eight_kilobytes_at_each_end_of_an_answer_are_searched(answer: bytes, expected: int, size: int) -> None:
    reader = Plain()
    for begin in range(0, len(answer), size):
        assert reader.feed(answer[begin : begin + size]) == answer[begin : begin + size]
    assert (reader.end(), reader.tokens) == (b"", Tokens(expected))
    assert forward.whole(answer) == Tokens(expected)


@pytest.mark.parametrize(("size", "expected"), [(8192, 0), (8193, 5)])
def test_only_a_short_answer_is_parsed(size: int, expected: int) -> None:
    assert forward.whole(b'{"a":{"usage":{"total_tokens":5}}}'.ljust(size)) == Tokens(expected)


def test_a_line_is_kept_up_to_64_kilobytes() -> None:
    line = b"x" * (64 << 10)
    reader = Completions(usage=False, always=False)
    assert (reader.feed(line), reader.feed(b"x"), reader.end()) == (b"", line + b"x", b"")
    assert (reader.feed(line + b"x"), reader.end()) == (line + b"x", b"")
    assert (reader.feed(line), reader.feed(b"a\n" + line), reader.end()) == (b"", line + b"a\n", line)
    assert (reader.feed(b"a\n" + line + b"x"), reader.end()) == (b"a\n" + line + b"x", b"")


@pytest.mark.parametrize(("size", "read"), [(64 << 10, True), ((64 << 10) + 1, False)])
def test_a_usage_is_cut_from_a_line_up_to_64_kilobytes(size: int, read: bool) -> None:
    reader, line = Completions(usage=False, always=False), (b'data: {"id":1' + SECOND + b"}").ljust(size)
    assert reader.feed(line + b"\n") == (line.replace(SECOND, b"") if read else line) + b"\n"
    assert reader.tokens == Tokens(5 * read)


def test_an_empty_line_is_dropped_only_with_its_event() -> None:
    reader = Completions(usage=False, always=False)
    assert reader.feed(LAST + b"\n" + LAST + DONE) == b"\n" + DONE
    reader = Completions(usage=True, always=False)
    assert reader.feed(b"\n" + LAST) == b"\n" + LAST


@pytest.mark.parametrize(("place", "completion"), [(100, 3), (101, 8)])
def test_the_type_of_an_event_is_at_its_beginning(place: int, completion: int) -> None:
    reader, name = Events(), b'"message_start"'
    reader.feed(b'data: {"usage":{"output_tokens":3,"input_tokens":9}}\n')
    reader.feed(b"data: {".ljust(place - len(name)) + name + b',"usage":{"output_tokens":8,"input_tokens":4}}\n')
    assert (reader.tokens, reader.end()) == (Tokens(9, completion), b"")


def test_of_a_line_without_an_end_the_end_is_kept() -> None:
    reader = Events()
    reader.feed(b"x" * (64 << 10))
    assert len(reader._rest) == 64 << 10
    reader.feed(b"x")
    assert len(reader._rest) == 8 << 10
    # The beginning of a long line is gone, and the line after it is judged by its own.
    reader.feed(FIRST + b"\n" + SECOND + b"\n")
    assert reader.tokens == Tokens(4)
