# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse vLLM's responses, a run that a node returned, and records. All are untrusted, so each value is checked.

Sources of the responses: vLLM 0.18 to 0.33, entrypoints/openai/completion/protocol.py and
chat_completion/protocol.py; for the counters v1/spec_decode/metrics.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Answer, Run
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import REASONING_FIELDS

#: Maximum characters of a response or record. Then the maximum tokens of a prompt and of an answer, candidates of a
#: position, characters of a text, and answers of a run.
MOST = 4 * 1024**2
_PROMPT, _TOKENS, _TOP, _TEXT, _ANSWERS = 16384, 256, 32, 16384, 32
_TOKEN = re.compile(r"(?:token_id:)?(\d{1,9})", re.ASCII)
_NAME = re.compile(r"[a-z][a-z_]{0,30}", re.ASCII)
_COUNTER = re.compile(
    r"^vllm:spec_decode_num_(draft|accepted)_tokens_total\{[^}\n]*\}\s+(\d+(?:\.\d+)?(?:e\+\d+)?)$", re.MULTILINE
)


class InvalidError(ValueError):
    """A value has the wrong type or exceeds its limit. ``path`` is its location."""

    def __init__(self, path: str, found: object, expected: str) -> None:
        self.path, self.found, self.expected = path, _short(found), expected
        super().__init__(f"{path} is {self.found}, expected {expected}")


def body(text: str, path: str = "the response") -> dict[str, Any]:
    """Return the JSON object of a response or of another text. Raises InvalidError."""
    try:
        found = bounded_json.load(text, MOST)
    except ValueError as error:
        raise InvalidError(path, str(error), "JSON") from error
    return mapping(found, path)


def completion(text: str) -> Answer:
    """Parse the response to a completion request. Raises InvalidError."""
    choice = _choice(body(text))
    found = mapping(choice.get("logprobs"), "logprobs")
    return answer(
        {
            "text": choice.get("text"),
            "prompt": choice.get("prompt_token_ids") or [],
            "tokens": found.get("tokens"),
            "logprobs": found.get("token_logprobs"),
            "top": found.get("top_logprobs"),
        },
        "logprobs",
    )


def chat(text: str) -> Answer:
    """Parse the response to a chat request. Raises InvalidError."""
    response = body(text)
    choice = _choice(response)
    message = mapping(choice.get("message"), "message")
    calls = bounded_json.mappings(message.get("tool_calls"))
    called = [mapping(call.get("function"), "function") for call in calls]
    parts = [next((message[name] for name in REASONING_FIELDS if message.get(name)), ""), message.get("content") or ""]
    parts += [f"{call.get('name')}({call.get('arguments')})" for call in called]
    content = bounded_json.mappings(mapping(choice.get("logprobs"), "logprobs").get("content"))
    return answer(
        {
            "text": "\n".join(str(part) for part in parts if part),
            "prompt": response.get("prompt_token_ids") or [],
            "tokens": [entry.get("token") for entry in content],
            "logprobs": [entry.get("logprob") for entry in content],
            "top": [
                {str(top.get("token")): top.get("logprob") for top in bounded_json.mappings(entry.get("top_logprobs"))}
                for entry in content
            ],
        },
        "logprobs",
    )


def perplexity(text: str) -> float:
    """Return the perplexity of the prompt: exp of the mean negative log-probability of its tokens after the first.

    Raises InvalidError.
    """
    choice = _choice(body(text))
    # The first token has no log-probability.
    entries = _list(choice.get("prompt_logprobs"), "prompt_logprobs", _PROMPT)[1:]
    total = 0.0
    for index, entry in enumerate(entries):
        path = f"prompt_logprobs[{index + 1}]"
        # The prompt's own token is first.
        values = list(mapping(entry, path).values())
        total += number(mapping(values[0] if values else None, path).get("logprob"), f"{path}.logprob")
    if not entries:
        raise InvalidError("prompt_logprobs", "empty", "a log-probability for each token of the prompt")
    return math.exp(min(-total / len(entries), 100.0))


def served(text: str, model: str, root: str) -> int:
    """Return max_model_len of the served model, from /v1/models. Raises InvalidError if the server has another one.

    ``root``: the expected path or Hub name of the model, "" for any.
    """
    entries = bounded_json.mappings(body(text).get("data"))
    found = next((entry for entry in entries if entry.get("id") == model), None)
    if found is None:
        raise InvalidError("the served model", ", ".join(str(entry.get("id")) for entry in entries) or "none", model)
    if root and found.get("root") != root:
        raise InvalidError("the served model's path", found.get("root"), root)
    limit = found.get("max_model_len")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit < 1 << 31:
        raise InvalidError("max_model_len", limit, "a number of tokens")
    return limit


def version(text: str) -> str:
    """Return the release of vLLM, from /version. Raises InvalidError."""
    return line(body(text).get("version"), "version")


def without_template(error: str) -> bool:
    """Return whether an error reports that the model has no chat template: it only completes text."""
    return error.startswith("HTTP 4") and "chat template" in error.lower()


def drafts(metrics: str) -> tuple[float, float] | None:
    """Return the drafted and the accepted tokens since the start, None without speculative decoding."""
    found: dict[str, float] = {}
    for name, value in _COUNTER.findall(metrics):
        found[name] = found.get(name, 0.0) + float(value)
    return (found["draft"], found["accepted"]) if found.keys() == {"draft", "accepted"} else None


def run(data: object, path: str) -> Run:
    """Return a run from its plain data; see the fields of Run. Raises InvalidError."""
    given = mapping(data, path)
    answers = mapping(given.get("answers"), f"{path}.answers")
    if len(answers) > _ANSWERS:
        raise InvalidError(f"{path}.answers", f"{len(answers)} entries", f"at most {_ANSWERS}")
    for name in answers:
        if not _NAME.fullmatch(str(name)):
            raise InvalidError(f"{path}.answers", name, "names of requests in lower case")
    return Run(
        answers={name: answer(value, f"{path}.answers.{name}") for name, value in answers.items()},
        perplexity=_optional(given.get("perplexity"), f"{path}.perplexity"),
        acceptance=_optional(given.get("acceptance"), f"{path}.acceptance"),
        vllm=line(given.get("vllm", ""), f"{path}.vllm"),
        problems=tuple(
            _text(each, f"{path}.problems") for each in _list(given.get("problems", []), f"{path}.problems", 64)
        ),
        notes=tuple(_text(each, f"{path}.notes") for each in _list(given.get("notes", []), f"{path}.notes", 64)),
    )


def prompts(text: str) -> dict[str, list[int]]:
    """Return the recorded prompts by request from their JSON, {} for "". Raises InvalidError."""
    return {name: _tokens(value, f"prompts.{name}", _PROMPT) for name, value in body(text or "{}", "prompts").items()}


def answer(data: object, path: str) -> Answer:
    """Return an answer from its plain data; see the fields of Answer. Raises InvalidError."""
    given = mapping(data, path)
    tokens = _tokens(given.get("tokens"), f"{path}.tokens", _TOKENS)
    logprobs = _list(given.get("logprobs"), f"{path}.logprobs", _TOKENS)
    top = _list(given.get("top"), f"{path}.top", _TOKENS)
    if not len(tokens) == len(logprobs) == len(top):
        raise InvalidError(
            path, f"{len(tokens)} tokens with {len(logprobs)} log-probabilities and {len(top)} lists", "equal lengths"
        )
    return Answer(
        text=_text(given.get("text"), f"{path}.text"),
        prompt=tuple(_tokens(given.get("prompt"), f"{path}.prompt", _PROMPT)),
        tokens=tuple(tokens),
        logprobs=tuple(number(each, f"{path}.logprobs[{index}]") for index, each in enumerate(logprobs)),
        top=tuple(_candidates(each, f"{path}.top[{index}]") for index, each in enumerate(top)),
    )


def mapping(value: object, path: str) -> dict[str, Any]:
    """Return an object. Raises InvalidError."""
    if not isinstance(value, Mapping):
        raise InvalidError(path, value, "an object")
    return dict(value)


def number(value: object, path: str) -> float:
    """Return a finite number. Raises InvalidError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidError(path, value, "a finite number")
    return float(value)


def line(value: object, path: str) -> str:
    """Return a text of one printable line of at most 300 characters. Raises InvalidError."""
    found = _text(value, path)
    if len(found) > 300 or not found.isprintable():
        raise InvalidError(path, found, "a printable text of at most 300 characters")
    return found


def _optional(value: object, path: str) -> float | None:
    return None if value is None else number(value, path)


def _candidates(value: object, path: str) -> dict[int, float]:
    found = mapping(value, path)
    if len(found) > _TOP:
        raise InvalidError(path, f"{len(found)} candidates", f"at most {_TOP}")
    return {_token(name, path): number(each, f"{path}.{_short(name)}") for name, each in found.items()}


def _token(value: object, path: str) -> int:
    if not (found := _TOKEN.fullmatch(str(value))):
        raise InvalidError(path, value, "a token ID")
    return int(found[1])


def _tokens(value: object, path: str, most: int) -> list[int]:
    return [_token(each, f"{path}[{index}]") for index, each in enumerate(_list(value, path, most))]


def _list(value: object, path: str, most: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidError(path, value, "a list")
    if len(value) > most:
        raise InvalidError(path, f"{len(value)} entries", f"at most {most}")
    return list(value)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or len(value) > _TEXT:
        raise InvalidError(path, value, f"a text of at most {_TEXT} characters")
    return value


def _choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = bounded_json.mappings(response.get("choices"))
    if not choices:
        raise InvalidError("choices", response.get("choices"), "a list with one object")
    return choices[0]


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else value
    return "".join(character if character.isprintable() else "?" for character in text[:80]) or "empty"
