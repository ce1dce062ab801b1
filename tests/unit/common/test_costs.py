"""Requests whose cost is not their size: texts without an end, and answers by the thousand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import costs

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
MEBI = 1 << 20


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def limited(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": {} for number in range(count)}, "maxProperties": 2}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (20 * MEBI)}}
SOUND = {"type": "input_audio", "input_audio": {"data": "A" * (20 * MEBI), "format": "wav"}}
CALL = {"type": "tool_use", "name": "get", "input": {"url": "A" * (9 * MEBI)}}


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (COMPLETIONS, {"prompt": "x" * (8 * MEBI)}, ""),
        (COMPLETIONS, {"prompt": "x" * (9 * MEBI)}, costs.LONG),
        (COMPLETIONS, {"prompt": "x" * (2 * MEBI), "truncate_prompt_tokens": 10}, costs.LONG),
        (COMPLETIONS, {"prompt": "x" * MEBI, "truncate_prompt_tokens": 10}, ""),
        ("/v1/responses", {"input": "x" * (2 * MEBI), "truncation": "auto"}, costs.LONG),
        ("/v1/responses", {"input": "x" * (2 * MEBI), "truncation": "disabled"}, ""),
        ("/tokenize", {"prompt": "x" * (2 * MEBI)}, costs.LONG),
        ("/tokenize/", {"messages": [{"role": "user", "content": "x" * (2 * MEBI)}]}, costs.LONG),
        # Texts that become one prompt count together, and others each.
        (CHAT, {"messages": [{"role": "user", "content": "x" * MEBI}] * 9}, costs.LONG),
        (EMBEDDINGS, {"input": ["x" * MEBI] * 9, "truncate_prompt_tokens": -1}, ""),
        (EMBEDDINGS, {"input": ["x" * MEBI] * 17}, costs.LONG),
        ("/v1/rerank", {"query": "x", "documents": ["x" * 9000] * 1500}, ""),
        # Images and sound are no texts, but a template writes the arguments of a call.
        (CHAT, said(IMAGE, SOUND), ""),
        (CHAT, said(IMAGE, SOUND) | {"truncate_prompt_tokens": 5}, ""),
        ("/v1/messages", said(CALL), costs.LONG),
        (CHAT, {"tools": [{"function": {"parameters": {"url": "x" * (9 * MEBI)}}}]}, costs.LONG),
        (COMPLETIONS, {"prompt_embeds": "A" * (20 * MEBI)}, ""),
        # Compiled texts, wherever they are. A text of JSON is read, too.
        (CHAT, {"structured_outputs": {"grammar": "a" * (16 << 10)}}, ""),
        (CHAT, {"structured_outputs": {"grammar": "a" * (17 << 10)}}, costs.COMPILED),
        (CHAT, {"structured_outputs": {"choice": ["a" * 20_000] * 5}}, costs.COMPILED),
        (CHAT, {"guided_choice": [str(number) for number in range(20_000)]}, ""),
        (CHAT, {"guided_choice": ["a" * 100] * 1400}, costs.COMPILED),
        (CHAT, {"guided_regex": "a" * (17 << 10)}, costs.COMPILED),
        (CHAT, {"tools": [{"function": {"parameters": {"pattern": "a" * (9 << 10)}}}] * 2}, costs.COMPILED),
        (CHAT, {"structured_outputs": {"json": "not JSON" * 3000}}, costs.COMPILED),
        (CHAT, {"response_format": {"json_schema": {"schema": limited(129)}}}, costs.COMPILED),
        (CHAT, {"response_format": {"json_schema": {"schema": limited(128)}}}, ""),
        (CHAT, {"response_format": {"json_schema": {"schema": {"anyOf": [limited(128)] * 10}}}}, costs.COMPILED),
        (CHAT, {"structured_outputs": {"json": json.dumps(limited(129))}}, costs.COMPILED),
        (CHAT, {"structured_outputs": {"json": json.dumps({"schema": json.dumps(limited(129))})}}, costs.COMPILED),
        (CHAT, {"structured_outputs": {"json": json.dumps({"enum": ["x"] * 60_000})}}, costs.COMPILED),
        (CHAT, {"structured_outputs": {"json": json.dumps({"enum": ["x"] * 40_000})}}, ""),
        (CHAT, {"structured_outputs": {"json": {"patternProperties": {"a" * (17 << 10): {}}}}}, costs.COMPILED),
        (CHAT, {"tools": [{"function": {"parameters": {"properties": limited(1000)["properties"]}}}]}, ""),
        (CHAT, {"tools": [{"function": {"parameters": {"properties": limited(1001)["properties"]}}}]}, costs.COMPILED),
        (CHAT, {"tools": [{"parameters": {"properties": limited(900)["properties"]}}] * 5}, costs.COMPILED),
        (CHAT, {"request_id": "r" * 256}, ""),
        # A template writes the names of members, too.
        ("/tokenize", {"messages": [], "tools": [{"function": {"parameters": {"x" * (2 * MEBI): {}}}}]}, costs.LONG),
        (CHAT, {"request_id": "r" * 257}, costs.NAMED),
        ("/v1/systemone", {"state": "x" * MEBI, "questions": ["?"] * 16}, costs.LONG),
        ("/v1/systemone", {"state": "x" * MEBI, "questions": ["?"] * 15}, ""),
        (CHAT, {"messages": [{"role": "user", "content": "x", "pattern": "a" * (17 << 10)}]}, ""),
        (COMPLETIONS, {"bad_words": ["a" * 9000, "b" * 9000]}, costs.COMPILED),
        ("/inference/v1/generate", {"sampling_params": {"bad_words": ["a" * 17_000]}}, costs.COMPILED),
        # vLLM verifies all of it again for each prompt.
        (COMPLETIONS, {"prompt": ["a"] * 60, "structured_outputs": {"json": limited(128)}}, costs.COMPILED),
        (COMPLETIONS, {"prompt": ["a"] * 1000, "bad_words": ["b"] * 127}, costs.COMPILED),
        (COMPLETIONS, {"prompt": ["a"] * 1000, "bad_words": ["b"] * 9}, ""),
        (COMPLETIONS, {"prompt": ["a"] * 1000, "structured_outputs": {"json": {"enum": ["x"] * 600}}}, costs.COMPILED),
        (COMPLETIONS, {"prompt": ["a"] * 100, "structured_outputs": {"json": {"enum": ["x"] * 600}}}, ""),
        # Tokens that the server's loop makes, and copies for each item.
        ("/generative_scoring", {"query": "x" * MEBI, "items": ["a"]}, costs.LONG),
        ("/generative_scoring", {"query": "x" * 100_000, "items": ["a"] * 100}, costs.LONG),
        ("/generative_scoring", {"query": "x" * 8000, "items": ["a"] * 1000}, ""),
        ("/generative_scoring", {"query": "x", "items": ["a"] * 1025}, costs.MANY),
        ("/inference/v1/generate", {"sampling_params": {"n": 16_384}}, costs.MANY),
        # 16,384 answers in a request of 40 bytes.
        (CHAT, {"n": 1024}, ""),
        (CHAT, {"n": 16_384}, costs.MANY),
        (CHAT, {"n": "16384"}, costs.MANY),
        (CHAT, {"n": "1e400"}, costs.MANY),
        (CHAT, {"n": "many"}, ""),
        (CHAT, {"n": None, "best_of": 2000.0}, costs.MANY),
        (COMPLETIONS, {"prompt": ["a", "b", "c"], "n": 342}, costs.MANY),
        (COMPLETIONS, {"prompt": [[1, 2], [3]], "n": 512}, ""),
        (COMPLETIONS, {"prompt": [1, 2, 3], "n": 1024}, ""),
        ("/v1/chat/completions/batch", {"messages": [[{}], [{}]], "n": 513}, costs.MANY),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_too_much(path: str, body: dict[str, Any], code: str) -> None:
    assert costs.refusal(path, body) == code


def schema(**parts: Any) -> dict[str, Any]:
    return {"structured_outputs": parts}


@pytest.mark.parametrize(
    ("path", "right", "wrong", "code"),
    [
        (COMPLETIONS, {"prompt": "x" * 8 * MEBI}, {"prompt": "x" * (8 * MEBI + 1)}, costs.LONG),
        ("/tokenize", {"prompt": "x" * MEBI}, {"prompt": "x" * (MEBI + 1)}, costs.LONG),
        (EMBEDDINGS, {"input": ["x" * 8 * MEBI] * 2}, {"input": ["x" * 8 * MEBI] * 2 + ["x"]}, costs.LONG),
        (EMBEDDINGS, {"input": ["x" * 8 * MEBI]}, {"input": ["x" * (8 * MEBI + 1)]}, costs.LONG),
        ("/rerank", {"documents": ["x" * MEBI], "max_tokens_per_doc": 9}, {"documents": ["x" * MEBI, "x"], "max_tokens_per_doc": 9}, costs.LONG),
        ("/generative_scoring", {"query": "x" * 130_000, "items": ["x" * 1072]}, {"query": "x" * 130_000, "items": ["x" * 1073]}, costs.LONG),
        ("/generative_scoring", {"query": [1] * (8 << 10), "items": ["x"] * 1024}, {"query": [1] * (8 << 10) + [1], "items": ["x"] * 1024}, costs.LONG),
        (EMBEDDINGS, {"input": ["x"] * 2048}, {"input": ["x"] * 2049}, costs.MANY),
        (CHAT, {"n": 1024}, {"n": 1025}, costs.MANY),
        (CHAT, schema(ebnf="a" * (16 << 10)), schema(ebnf="a" * (16 << 10) + "a"), costs.COMPILED),
        (CHAT, {"bad_words": ["a" * 16_376]}, {"bad_words": ["a" * 16_377]}, costs.COMPILED),
        (CHAT, schema(choice=["a" * 512] * 256), schema(choice=["a" * 512] * 256 + ["a"]), costs.COMPILED),
        (CHAT, schema(choice=["a" * 10_000]), schema(choice=["a" * 10_000, "a"]), costs.COMPILED),
        (CHAT, schema(json=json.dumps("x" * 262_142)), schema(json=json.dumps("x" * 262_143)), costs.COMPILED),
        (CHAT, schema(json="?" * (16 << 10)), schema(json="?" * (16 << 10) + "?"), costs.COMPILED),
        (CHAT, {"x": {"patternProperties": {"a" * (16 << 10): 1}}}, {"x": {"patternProperties": {"a" * 16385: 1}}}, costs.COMPILED),
        (CHAT, {"x": limited(128), "y": {"properties": 5}}, {"x": limited(128), "y": limited(1)}, costs.COMPILED),
        (CHAT, {"x": [{"properties": limited(1000)["properties"]}] * 4}, {"x": [{"properties": limited(1000)["properties"]}] * 4 + [{"properties": {"a": 1}}]}, costs.COMPILED),
        # All prompts together.
        (COMPLETIONS, schema(ebnf="a" * (16 << 10)) | {"prompt": ["a"] * 4}, schema(ebnf="a" * (16 << 10)) | {"prompt": ["a"] * 5}, costs.COMPILED),
        (COMPLETIONS, {"bad_words": ["a" * 16_376], "prompt": ["a"] * 16}, {"bad_words": ["a" * 16_376], "prompt": ["a"] * 17}, costs.COMPILED),
        (COMPLETIONS, schema(choice=["a" * 512] * 256) | {"prompt": ["a"] * 4}, schema(choice=["a" * 512] * 256) | {"prompt": ["a"] * 5}, costs.COMPILED),
        (COMPLETIONS, {"x": [1] * 166_665, "prompt": ["a"] * 3}, {"x": [1] * 166_666, "prompt": ["a"] * 3}, costs.COMPILED),
        (COMPLETIONS, {"x": limited(64), "prompt": ["a"] * 4}, {"x": limited(64), "prompt": ["a"] * 5}, costs.COMPILED),
        (CHAT, {"x": [1] * 600_000}, {"x": [1] * 600_000, "user": "u" * 257}, costs.NAMED),
    ],
    ids=range(24),
)  # fmt: skip
def test_each_limit_is_reached_and_not_exceeded(
    path: str, right: dict[str, Any], wrong: dict[str, Any], code: str
) -> None:
    assert (costs.refusal(path, right), costs.refusal(path, wrong)) == ("", code)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 1),
        ([], 1),
        ("x", 1),
        ("nan", 1),
        ("2.9", 2),
        (True, 1),
        (0, 0),
        (-3, -3),
        (7, 7),
        (float("inf"), 1025),
        ("1e400", 1025),
    ],
)
def test_a_number_is_read_as_pydantic_does(value: Any, expected: int) -> None:
    assert costs.number(value) == expected
    assert costs.copies({"n": value}) == costs.copies({"sampling_params": {"best_of": value}}) == max(1, expected)


def test_each_refusal_has_its_status() -> None:
    assert {code: status for code, (status, _text) in costs.REFUSALS.items()} == {
        costs.LONG: 413,
        costs.MANY: 413,
        costs.COMPILED: 413,
        costs.NAMED: 400,
    }
    texts = [text for _status, text in costs.REFUSALS.values()]
    assert "8 Mi characters" in texts[0] and "1 Mi in" in texts[0] and "16 Mi as" in texts[0]
    assert "16 Ki characters" in texts[2] and "128 Ki" in texts[2] and "256 Ki" in texts[2]
