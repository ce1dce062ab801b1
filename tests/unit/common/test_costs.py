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
