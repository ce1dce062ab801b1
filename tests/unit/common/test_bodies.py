"""Bodies that vLLM's types would refuse with any number of errors. tests/gpu and the clients' tests have real types."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common import bodies, limits

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Type:
    """The type of a chat's body: messages have a role, tools a name, and a chosen tool is one of the list."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, body: Mapping[str, Any]) -> None:
        self.seen.append(len(json.dumps(body)))
        for message in [*body.get("messages", ()), *within(body.get("q"))]:
            parts = message["content"] if isinstance(message.get("content"), list) else []
            if "role" not in message or any("type" not in part for part in parts):
                raise ValueError(message)
        if any("name" not in tool for tool in body.get("tools", ())):
            # As vLLM's own errors, it is no ValueError.
            raise ArithmeticError
        if any(not isinstance(token, str) for token in body.get("tokens", ())):
            raise ValueError("tokens")
        if not isinstance(body.get("model", ""), str):
            raise ValueError(body["model"])
        if body.get("stream_options") and not body.get("stream"):
            raise ValueError("stream")
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice["name"] not in [tool["name"] for tool in body["tools"]]:
            raise ValueError(choice)
        if body.get("mode") and not body.get("options"):
            raise ValueError("options")


def within(value: Any) -> list[Any]:
    """Return the messages in an object."""
    members = value.items() if isinstance(value, dict) else ()
    return [each for name, inner in members for each in (inner if name == "messages" else within(inner))]


def refusal(path: str, data: bytes, verify: bodies.Verify | None) -> str:
    """Return the first code, as the guard does."""
    found = bodies.members(data)
    return limits.ENCODING if found is None else next(filter(None, bodies.refusals(path, found, verify)), "")


def refused(path: str, body: Any) -> tuple[str, Type]:
    kind = Type()
    return refusal(path, json.dumps(body).encode(), kind), kind


def deep(levels: int) -> Any:
    value: Any = [0] * 9000
    for _level in range(levels):
        value = [value]
    return value


RIGHT = {"role": "user", "content": "x"}
PART = {"type": "text", "text": "x"}
TOOLS = [{"name": f"t{number}"} for number in range(90)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param({"messages": [RIGHT] * 9000}, "", id="right"),
        pytest.param({"messages": [{}] * 15}, "", id="a few wrong ones: vLLM names the error"),
        pytest.param({"messages": [{}] * 9000}, bodies.WRONG, id="wrong"),
        pytest.param({"messages": [*[RIGHT] * 9000, {}]}, bodies.WRONG, id="the last one is wrong"),
        pytest.param({"messages": [{"role": "user", "content": [PART] * 5000}]}, "", id="many parts"),
        pytest.param(
            {"messages": [{"role": "user", "content": [*[PART] * 5000, {}]}]}, bodies.WRONG, id="a wrong part"
        ),
        pytest.param({"messages": [RIGHT], "tools": TOOLS}, "", id="tools"),
        pytest.param({"messages": [RIGHT], "tools": [*TOOLS, {}]}, bodies.WRONG, id="another error than ValueError"),
        pytest.param(
            {"messages": [RIGHT] * 99, "tools": TOOLS, "tool_choice": {"name": "t80"}}, "", id="a chosen tool"
        ),
        pytest.param({"messages": [RIGHT] * 99, "stream": True, "stream_options": {"a": 1}}, "", id="options"),
        pytest.param(
            {"messages": [RIGHT] * 99, "mode": 1, "options": {"a": 1}}, "", id="an option that needs an object"
        ),
        pytest.param({"messages": [RIGHT] * 5, "model": 7}, "", id="wrong elsewhere, and short"),
        pytest.param({"messages": [RIGHT] * 99, "model": 7}, bodies.WRONG, id="wrong elsewhere, and long"),
        pytest.param({"messages": [RIGHT], "q": deep(25)}, "", id="levels"),
        pytest.param({"messages": [RIGHT], "q": deep(300)}, limits.COMPLEX, id="too many levels"),
        pytest.param(
            {"messages": [RIGHT] * 9, "mode": 1, "options": {str(number): 1 for number in range(999)}},
            "",
            id="an option that needs a large object",
        ),
        pytest.param({"messages": [{**RIGHT, "x": dict.fromkeys(map(str, range(6000)))}]}, "", id="a map"),
        pytest.param(
            {"messages": [{**RIGHT, **{f"x{n}": {f"y{m}": [0] * 60 for m in range(4)} for n in range(90)}}]},
            limits.COMPLEX,
            id="no map",
        ),
        pytest.param({"messages": [RIGHT], "q": {"messages": [*[RIGHT] * 900, {}]}}, bodies.WRONG, id="in an object"),
        pytest.param({"messages": [RIGHT], "q": {"messages": [RIGHT] * 900}}, "", id="right in an object"),
        pytest.param(
            {"messages": [{**RIGHT, "content": [*[PART] * 900, {}], "x": [1] * 5000}]},
            bodies.WRONG,
            id="in a list beside a longer one",
        ),
        pytest.param(
            {"messages": [RIGHT], "q": {"a": {"b": {str(n): {"messages": [{}]} for n in range(900)}}}},
            bodies.WRONG,
            id="in a map in objects",
        ),
        pytest.param({"messages": [[RIGHT]] * 900}, bodies.WRONG, id="another form"),
        pytest.param(["x"] * 500, "", id="a list"),
        pytest.param({"prompt": "x" * 5000}, "", id="a text"),
    ],
)
def test_a_wrong_part_ends_a_chat(body: Any, code: str) -> None:
    found, kind = refused(CHAT, body)
    assert (found, max(kind.seen, default=0) < 9000) == (code, True), "more than a part was verified at once"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({f"q{number}": [1] for number in range(1000)}, ""),
        ({f"q{number}": [1] for number in range(2500)}, limits.COMPLEX),
        ({"messages": [RIGHT] * 9000, "q": [{"a": dict.fromkeys(map(str, range(90)))}]}, ""),
        (
            {"messages": [RIGHT] * 9000, "q": [{f"a{n}": dict.fromkeys(map(str, range(50))) for n in range(90)}]},
            limits.COMPLEX,
        ),
    ],
    ids=["many lists", "too many lists", "an entry beside many parts", "a large entry beside many parts"],
)
def test_the_work_of_all_parts_is_limited(body: Any, code: str) -> None:
    assert refused(CHAT, body)[0] == code


def test_others_can_run_after_each_part() -> None:
    kind = Type()
    found = bodies.refusals(CHAT, {"messages": [RIGHT] * 60}, kind)
    seen = [(code, len(kind.seen)) for code in found]
    # The first verification is of all lists' first parts.
    assert seen == [("", number + 2) for number in range(10)]


def test_a_part_has_about_twenty_values() -> None:
    assert refused(CHAT, {"messages": [RIGHT] * 13, "suffix": "u" * 5000})[1].seen == [
        len(json.dumps({"suffix": "u" * 100, "messages": [RIGHT] * number})) for number in (6, 6, 6, 1)
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"prompt": list(range(99_000))}, ""),
        ({"input": [[1, 2]] * 50_000}, ""),
        ({"input": ["x"] * 99_000}, ""),
        ({"prompt": []}, ""),
        ({"prompt": [-1] * 99_000}, limits.COMPLEX),
        ({"prompt": [1 << 31] * 99_000}, limits.COMPLEX),
        ({"prompt": [True] * 99_000}, limits.COMPLEX),
        ({"prompt": [1, "x"] * 50_000}, limits.COMPLEX),
        ({"input": [[1, "x"]] * 50_000}, limits.COMPLEX),
        ({"prompt": "x", "stop_token_ids": [1] * 99_000}, limits.COMPLEX),
        ({"prompt": "x", "vllm_xargs": {"a": [{}] * 99_000}}, limits.COMPLEX),
        ({"prompt": [1] * 99_000, "messages": [{}] * 2000}, bodies.WRONG),
        # 600 KB were silent for 62 s: nine errors for each entry, because of another value.
        ({"prompt": [1] * 99_000, "model": 7}, bodies.WRONG),
        ({"input": ["x"] * 99_000, "model": 7}, bodies.WRONG),
        ({"input": [[1]] * 40_000, "model": 7}, bodies.WRONG),
        ({"input": [[]] * 99_000}, limits.COMPLEX),
        ({"input": [[]] * 40_000, "model": 7}, bodies.WRONG),
        # A route that takes texts only, such as that of a tokenizer.
        ({"tokens": [1] * 99_000}, bodies.WRONG),
        ({"tokens": ["x"] * 99_000}, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_only_tokens_are_many(body: Any, code: str) -> None:
    assert refused(COMPLETIONS, body)[0] == code
    if code != bodies.WRONG and "tokens" not in body:
        assert refusal(COMPLETIONS, json.dumps(body).encode(), None) == code


def test_tokens_are_many_only_in_their_paths() -> None:
    assert refused(CHAT, {"prompt": list(range(99_000))})[0] == limits.COMPLEX


@pytest.mark.parametrize("body", [b"{" * 300, b"[" * 40_000, b"1" * 5000], ids=["cut off", "deep", "a number"])
def test_what_is_no_json_is_vllms(body: bytes) -> None:
    assert refusal(CHAT, body, Type()) == ""


def leaves(value: Any) -> set[int]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {value} if isinstance(value, int) else {leaf for each in inner for leaf in leaves(each)}


SHAPES = st.recursive(
    st.just(0),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.integers(0, 200).map(str), inner, max_size=150),
    max_leaves=400,
)


@settings(max_examples=60, deadline=None)
@given(SHAPES)
def test_every_value_of_lists_and_large_objects_is_verified(shape: Any) -> None:
    count = itertools.count()

    def numbered(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: numbered(each) for name, each in value.items()}
        return list(map(numbered, value)) if isinstance(value, list) else next(count)

    body = {"q": [numbered(shape)], "r": {"a": numbered(shape), "b": numbered([0] * 30)}}
    seen: set[int] = set()
    assert refusal(CHAT, json.dumps(body).encode(), lambda part: seen.update(leaves(part))) == ""
    assert seen == leaves(body)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "\\\\ud83d"}', {"a": "\\ud83d"}),
        (b'{"a": "\\ud83d"}', None),
        (b'{"a": ["\\uDE00\\uD83D"]}', None),
        (b'{"\\udc00": 1}', None),
        (b'{"a": "\xed\xa0\x80"}', None),
        (b'{"a": "\xed\x9f\xbf"}', {"a": "\ud7ff"}),
        (b'{"a": "\\ud83d"', {}),
        (b"[1]", {}),
    ],
)
def test_half_of_a_character_is_found(data: bytes, expected: dict[str, Any] | None) -> None:
    assert bodies.members(data) == expected


@pytest.mark.parametrize(
    ("path", "body", "code", "verified"),
    [
        (CHAT, {"q": [0] * 18}, "", False),
        (CHAT, {"q": [0] * 19}, "", True),
        (COMPLETIONS, {"prompt": [0] * 20}, "", False),
        (COMPLETIONS, {"prompt": [0] * 21}, "", True),
        (CHAT, {"q": [0] * (limits.MOST_MARKS - 2)}, "", True),
        (CHAT, {"q": [0] * (limits.MOST_MARKS - 1)}, limits.COMPLEX, False),
        (COMPLETIONS, {"prompt": [0, (1 << 31) - 1] * 30_000}, "", True),
        (COMPLETIONS, {"prompt": [0, 1 << 31] * 30_000}, limits.COMPLEX, False),
        (CHAT, {"q": json.loads("[" * 30 + "0" + "]" * 30)}, "", True),
        (CHAT, {"q": json.loads("[" * 31 + "0" + "]" * 31)}, limits.COMPLEX, False),
        (CHAT, {"n": 1025, "q": [0] * 30}, "too_many_answers", False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_each_limit_of_a_body_is_reached_and_not_exceeded(path: str, body: Any, code: str, verified: bool) -> None:
    found, kind = refused(path, body)
    assert (found, bool(kind.seen)) == (code, verified)
