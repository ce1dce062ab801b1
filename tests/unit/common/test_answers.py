"""The memory of answers: log probabilities of tokens, and copies for each answer."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import answers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENTRY = 3 << 10


@pytest.mark.parametrize(
    ("body", "entries"),
    [
        ({"prompt": "hi", "n": 8, "max_tokens": 100}, 0),
        ({"prompt": "hi", "max_tokens": 100, "logprobs": 5}, 600),
        ({"prompt": "hi", "max_tokens": 100, "logprobs": 0}, 200),
        ({"prompt": "hi", "max_tokens": 200, "n": 256, "logprobs": 20}, 256 * 200 * 21),
        ({"prompt": ["a", "b"], "max_tokens": 100, "logprobs": 5}, 1200),
        ({"prompt": "hi", "logprobs": 5}, 6 * 8192),
        # vLLM merges the parts that a client is late to take.
        ({"prompt": "hi", "logprobs": 5, "stream": True}, 6 * 8192),
        # Tools become part of the prompt, with the names of their members.
        ({"messages": [], "tools": [{"x" * 100: "y" * 100}], "prompt_logprobs": 1}, 200),
        ({"prompt": "hi", "logprobs": True, "max_tokens": 10}, 20),
        ({"messages": [], "logprobs": False, "max_tokens": 10}, 0),
        # A number below zero gives nothing back, and members of other paths limit nothing.
        ({"prompt": "hi", "logprobs": 5, "max_tokens": -(10**12)}, 0),
        ({"prompt": "hi", "logprobs": 5, "max_output_tokens": 1, "sampling_params": {"max_tokens": 1}}, 6 * 8192),
        ({"prompt": "hi", "max_tokens": 10, "logprob_token_ids": [1, 2, 3]}, 40),
        # vLLM refuses it, unless all log probabilities are allowed.
        ({"prompt": "hi", "max_tokens": 100, "logprobs": -1}, 200),
        # The prompt's own: two ASCII characters, or one byte, are a token.
        ({"prompt": "x" * 100, "echo": True, "logprobs": 1, "max_tokens": 0}, 100),
        ({"prompt": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 100, "prompt_logprobs": 1}, 400),
        ({"prompt": [5] * 4000, "echo": True, "logprobs": 20, "n": 32, "max_tokens": 1}, 4001 * 21 * 32),
        ({"prompt": [[5] * 10, [6] * 10], "prompt_logprobs": 2}, 60),
        ({"prompt_token_ids": [5] * 10, "prompt_logprobs": 2}, 30),
        ({"messages": [{"content": "x" * 20}], "prompt_logprobs": 2}, 30),
    ],
)
def test_each_log_probability_needs_memory(body: dict[str, Any], entries: int) -> None:
    copied = answers.memory(COMPLETIONS, body) - entries * ENTRY
    # The names of its members, for several answers.
    assert 0 <= copied < 100_000


@pytest.mark.parametrize(
    ("path", "body", "entries"),
    [
        (CHAT, {"logprobs": True, "top_logprobs": 5, "max_completion_tokens": 10}, 60),
        (CHAT, {"logprobs": True, "top_logprobs": 5, "max_completion_tokens": 1, "max_tokens": 10}, 60),
        (CHAT, {"logprobs": True, "top_logprobs": 5, "max_output_tokens": 1}, 6 * 8192),
        ("/v1/responses", {"top_logprobs": 5, "max_output_tokens": 10, "max_tokens": 1}, 60),
        (f"{CHAT}/batch", {"messages": [[], []], "logprobs": True, "max_tokens": 10, "stream": True}, 40),
        # It repeats them in its last events.
        ("/v1/responses", {"top_logprobs": 5, "max_output_tokens": 10, "stream": True}, 60),
        ("/v1/responses", {"top_logprobs": 5, "max_tokens": 1}, 6 * 8192),
        ("/inference/v1/generate", {"sampling_params": {"max_tokens": 10, "n": 2, "logprobs": 4}}, 100),
        ("/inference/v1/generate", {"max_tokens": 1, "sampling_params": {"logprobs": 4}}, 5 * 8192),
    ],
)
def test_the_path_decides_which_member_limits_an_answer(path: str, body: dict[str, Any], entries: int) -> None:
    assert 0 <= answers.memory(path, body) - entries * ENTRY < 1000


@pytest.mark.parametrize(
    ("body", "copies"),
    [
        ({"prompt": "hi", "kv_transfer_params": {"a": "x" * 1000}}, 0),
        ({"prompt": "hi", "kv_transfer_params": {"a": "x" * 1000}, "n": 150}, 150),
        ({"prompt": "hi", "vllm_xargs": {"x" * 1000: 1}, "best_of": 150}, 150),
        ({"prompt": ["hi"] * 10, "stop": ["x" * 1000], "n": 15}, 150),
        ({"prompt": ["x" * 1000] * 10, "n": 15}, 0),
        ({"messages": [{"content": "x" * 1000}], "n": 150}, 0),
    ],
)
def test_the_texts_beside_the_prompts_are_copied_for_each_answer(body: dict[str, Any], copies: int) -> None:
    names = 2 * 150 * 100
    assert 2 * 1000 * copies <= answers.memory(CHAT, body) <= 2 * 1000 * copies + names


@pytest.mark.parametrize(
    ("path", "body", "vectors"),
    [
        ("/v1/embeddings", {"input": "x"}, 1),
        ("/v1/embeddings/", {"input": [[1], [2], [3]]}, 3),
        ("/v1/embeddings", {"input": [1, 2, 3]}, 1),
        ("/v1/embeddings", {"messages": [{"content": "x"}] * 9}, 1),
        ("/rerank", {"query": "x", "documents": [{"text": "x"}] * 5}, 5),
        ("/score", {"data_1": ["a"], "data_2": ["b"] * 7}, 7),
        ("/v2/embed", {"texts": ["x" * 1000] * 100}, 100),
        (COMPLETIONS, {"prompt": ["x"] * 5}, 0),
    ],
)
def test_each_vector_and_score_needs_memory(path: str, body: dict[str, Any], vectors: int) -> None:
    assert answers.memory(path, body) == vectors * (128 << 10)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (COMPLETIONS, {"prompt": "hi", "user": "xy"}, 0),
        (COMPLETIONS, {"prompt": "hi", "n": 3, "a": {"bc": ["d", {"e": 1}]}}, 3 * len("bcde") * 2),
        (COMPLETIONS, {"prompt": ["a", "b"], "user": "xy"}, 2 * len("xy") * 2),
        ("/rerank", {"query": "x", "documents": ["a", "b"], "user": "xy"}, 2 * (128 << 10)),
        # An uneven number of characters: half of a token is one.
        (COMPLETIONS, {"prompt": "abc", "prompt_logprobs": 0}, 2 * 2 * ENTRY),
        (COMPLETIONS, {"prompt": [7, [8, 9]], "prompt_logprobs": 1}, 3 * 2 * ENTRY),
        (COMPLETIONS, {"prompt": "ab", "echo": True, "logprobs": 1, "prompt_logprobs": 3, "max_tokens": 1}, (2 + 4) * ENTRY),
        (COMPLETIONS, {"prompt": "ab", "logprobs": 1, "max_tokens": None}, 8192 * 2 * ENTRY),
    ],
)  # fmt: skip
def test_the_memory_of_an_answer_is_counted_exactly(path: str, body: dict[str, Any], expected: int) -> None:
    assert answers.memory(path, body) == expected
