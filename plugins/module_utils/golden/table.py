# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The golden requests: fixed prompts, and a known text. A record has its own prompts, so these may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Tokens of each answer: enough for a wrong kernel to show, and a few seconds for the whole set.
MAX_TOKENS = 32
#: Recorded candidates of each position. vLLM returns up to 20 by default (--max-logprobs).
TOP = 5
#: The longest prompt in characters: about 2000 tokens.
_LONGEST = 8192
#: Positions that the answer, special tokens and a chat template need.
_RESERVED = 160
#: Fields of each request. Token IDs identify tokens, whose text may be ambiguous.
_COMMON: Mapping[str, Any] = {
    "max_tokens": MAX_TOKENS,
    "temperature": 0,
    "seed": 0,
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
}
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
#: Abraham Lincoln, Gettysburg, 1863; public domain. Trained models have a low perplexity on it.
KNOWN_TEXT = (
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, "
    "and dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing "
    "whether that nation, or any nation so conceived and so dedicated, can long endure. We are met on a great "
    "battle-field of that war."
)
_CODE = "def is_prime(number):\n    # Return whether a number is prime.\n    if number < 2:\n        return"
_SUM = "A train leaves at 9:40 and arrives at 13:05. It stops twice for 10 minutes. How long does it move?"
_TURNS = (
    ("user", "My name is Ada, and my number is 7."),
    ("assistant", "Hello Ada! I noted your number: 7."),
    ("user", "Add 5 to my number. Reply with my name and the sum."),
)
_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the current weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@dataclass(frozen=True)
class Question:
    """A request: path and body. ``characters``: of its prompt, an upper bound of its tokens."""

    path: str
    body: Mapping[str, Any]
    characters: int


def questions(model: str, max_model_len: int, tools: bool) -> dict[str, Question]:
    """Return the requests by name that fit into ``max_model_len`` tokens.

    ``tools``: whether the server parses tool calls.
    """
    found = {
        "completion": completion(model, "The capital of France is Paris. The capital of Italy is"),
        "code": completion(model, _CODE),
        "long": completion(model, long_prompt(min(_LONGEST, max_model_len - _RESERVED))),
        "chat": _chat(model, [("user", "Name the planets of the solar system in order.")]),
        "reasoning": _chat(model, [("user", _SUM)]),
        "turns": _chat(model, _TURNS),
    }
    if tools:
        found["tool"] = _chat(
            model, [("user", "What is the weather in Oslo? Use the tool.")], tools=[_WEATHER], tool_choice="auto"
        )
    return {name: question for name, question in found.items() if 0 < question.characters <= max_model_len - _RESERVED}


def completion(model: str, prompt: str | list[int]) -> Question:
    """Return the request for a completion of a text or of token IDs."""
    return Question(COMPLETIONS, {"model": model, **_COMMON, "logprobs": TOP, "prompt": prompt}, len(prompt))


def known_text(model: str) -> Question:
    """Return the request for the log-probabilities of the known text. vLLM generates at least one token."""
    body = {"model": model, "prompt": KNOWN_TEXT, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
    return Question(COMPLETIONS, body, len(KNOWN_TEXT))


def long_prompt(characters: int) -> str:
    """Return a list of numbered facts with a question about an early one, "" for fewer than 300 characters.

    A byte is at most one token, so that the prompt fits with every tokenizer.
    """
    question = "\nThe code of lamp 3 is"
    text, number, code = "The codes of the lamps:", 0, 1
    while True:
        number, code = number + 1, code * 7919 % 99991
        line = f"\nThe code of lamp {number} is {code}."
        if len(text) + len(line) + len(question) > characters:
            return text + question if len(text) >= 300 - len(question) else ""
        text += line


def _chat(model: str, turns: Sequence[tuple[str, str]], **more: Any) -> Question:
    messages = [{"role": role, "content": content} for role, content in turns]
    body = {"model": model, **_COMMON, "logprobs": True, "top_logprobs": TOP, "messages": messages, **more}
    return Question(CHATS, body, sum(len(content) for _role, content in turns) + len(str(more.get("tools", ""))))
