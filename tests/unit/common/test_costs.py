"""Requests whose cost is not their size: texts without an end, and answers by the thousand."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import costs

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
MEBI = 1 << 20


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


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
