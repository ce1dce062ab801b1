# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The smoke test's requests to a new server, and the validation of its answers.

Three requests: a completion, a chat, and the same chat as a stream. The stream takes another path through the server:
reasoning parsers have been right in one and wrong in the other. Source: vLLM 0.32,
entrypoints/generate/base/protocol.py DeltaMessage. Up to 0.11 the field `reasoning` was called `reasoning_content`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

REASONING_FIELDS = ("reasoning", "reasoning_content")
_QUESTION = "What is the capital of France?"
_SHOWN = 300
#: Maximum characters read of an answer, or of one of its events.
_MOST = 8 * 1024**2


@dataclass(frozen=True)
class Answer:
    """An answer; ``reasoning_field`` is the name of the field with the reasoning, or ""."""

    text: str = ""
    reasoning: str = ""
    reasoning_field: str = ""
    finish_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)


class AnswerError(Exception):
    """The response is not a valid answer."""


def questions(model: str, max_tokens: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return name -> (path, body) of each request."""
    common = {"model": model, "max_tokens": max_tokens, "temperature": 0}
    chat = {**common, "messages": [{"role": "user", "content": _QUESTION}]}
    return {
        "completion": ("/v1/completions", {**common, "prompt": "The capital of France is"}),
        "chat": ("/v1/chat/completions", chat),
        "stream": ("/v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": True}}),
    }


def whole(text: str) -> Answer:
    """Parse a completion or a chat that is not streamed. Raises AnswerError."""
    body = _json(text)
    choice = _choice(body, text)
    message = choice.get("message")
    return _answer(
        [message if isinstance(message, dict) else {"content": choice.get("text")}],
        choice.get("finish_reason"),
        body.get("usage"),
    )


def streamed(lines: Sequence[str]) -> Answer:
    """Join the lines of a stream of server-sent events. Raises AnswerError for an incomplete stream."""
    events = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    if not events or events[-1] != "[DONE]":
        last = _short(events[-1] if events else " ".join(lines))
        raise AnswerError(f"the stream is incomplete after {len(events)} events: {last}")
    deltas, finish, usage = [], None, None
    for event in events[:-1]:
        body = _json(event)
        usage = body.get("usage") or usage
        if body.get("error") or body.get("choices"):
            choice = _choice(body, event)
            deltas.append(choice.get("delta") or {})
            finish = choice.get("finish_reason") or finish
    return _answer(deltas, finish, usage)


def carries_text(line: str) -> bool:
    """Whether a line of a stream contains a token; used for timing."""
    if not line.startswith("data:") or "[DONE]" in line:
        return False
    choices = _json(line.removeprefix("data:")).get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    return any(delta.get(name) for name in ("content", *REASONING_FIELDS))


def problems(answers: Mapping[str, Answer], reasoning: bool, max_tokens: int) -> list[str]:
    """Return the problems of the answers, a sentence each. ``reasoning``: whether the model is a reasoning model.

    For a model not known to reason, reasoning also counts as an answer.
    """
    reported = []
    for name, answer in answers.items():
        if not answer.finish_reason:
            reported.append(f"the {name} has no finish_reason, so it is incomplete")
        if reasoning and name == "stream" and not answer.reasoning.strip():
            fields = " and ".join(REASONING_FIELDS)
            reported.append(f"the stream has neither of the fields {fields}: set the --reasoning-parser of this model")
        if answer.text.strip() or (answer.reasoning.strip() and not (reasoning and name != "completion")):
            continue
        spent = f"{answer.usage.get('completion_tokens', 'unknown')} of {max_tokens} tokens"
        if answer.reasoning.strip() and answer.finish_reason == "length":
            fix = "raise vllm_serve_smoke_tokens"
            reported.append(f"the {name} ends before the model finished reasoning, after {spent}: {fix}")
        else:
            reported.append(f"the {name} is empty after {spent} (finish_reason {answer.finish_reason or 'none'})")
    return reported


def lines(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the answers as lines for people; ``answers`` are plain data, as io_smoke.test() returns them."""
    result = [f"{name}: {answers[name]['text'].strip()}" for name in ("completion", "chat") if name in answers]
    if stream := answers.get("stream"):
        result.append(f"reasoning: {stream['reasoning_field'] or 'none'}")
        speed = stream["tokens_per_second"] or "unknown"
        result.append(f"first token after {stream['first_token_after']} s, then {speed} tokens/s")
    return result


def tokens_per_second(answer: Answer, first: float, last: float) -> float | None:
    """Return the rate of a stream's tokens after the first; times in seconds. None if unknown."""
    count = answer.usage.get("completion_tokens")
    return round((count - 1) / (last - first), 1) if isinstance(count, int) and count > 1 and last > first else None


def _answer(pieces: Sequence[Mapping[str, Any]], finish: Any, usage: Any) -> Answer:
    name = next((name for name in REASONING_FIELDS for piece in pieces if piece.get(name)), "")
    return Answer(
        text="".join(str(piece.get("content") or "") for piece in pieces),
        reasoning="".join(str(piece.get(name) or "") for piece in pieces) if name else "",
        reasoning_field=name,
        finish_reason=str(finish or ""),
        usage=usage if isinstance(usage, dict) else {},
    )


def _json(text: str) -> dict[str, Any]:
    try:
        body = bounded_json.load(text, _MOST)
    except ValueError as error:
        raise AnswerError(f"not JSON: {_short(text)}") from error
    if not isinstance(body, dict):
        raise AnswerError(f"not a JSON object: {_short(text)}")
    return body


def _choice(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise AnswerError(f"no choices: {_short(text)}")
    return choices[0]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
