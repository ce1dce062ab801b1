# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory that vLLM needs for the answers of a request, beyond its body.

vLLM builds an answer at once, in the server's loop: 128,000 positions with 20 log probabilities each took 36 s, asked
for with 12 KB, and 830 MB. It copies the parameters of a request for each answer into two processes: 150 answers with a
text of 8 MB took 2 GB. So both count as memory of the open requests, which has a limit for each address and in all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import costs

#: Bytes for a token with its text and probability in an answer. It needs some hundred, but 14 microseconds of the loop:
#: so all that is open takes at most 5 s.
_OF_ENTRY = 3 << 10
#: Bytes of a vector, also of a score: 2,048 numbers, as numbers and as text.
_OF_VECTOR = 128 << 10
#: The tokens of an answer without a limit; bytes of each copied character.
_UNLIMITED, _OF_COPY = 8192, 2
#: Characters of a token, if they are ASCII. Of others, each byte can be one.
_OF_TOKEN = 2
#: The path with its parameters in sampling_params; the members that limit an answer, by a part of the path, and those
#: of other paths.
_GENERATE = "/inference/v1/generate"
_LIMITS = {"/responses": ("max_output_tokens",), "/chat/completions": ("max_tokens", "max_completion_tokens")}
_OTHER_LIMITS = ("max_tokens",)


def memory(path: str, body: Mapping[str, Any]) -> int:
    """Return the bytes that the answers of a body need."""
    inner = body.get("sampling_params")
    both = (body, inner) if isinstance(inner, dict) else (body,)
    copies, prompts = costs.copies(body), costs.prompts(path, body)
    entries, pooling = 0, path.rstrip("/") in costs.POOLING
    shown = max(map(_shown, both))
    # Streams, too: vLLM merges parts that a client is late to take, and /v1/responses repeats all at the end.
    if shown:
        # Members of another path are ignored by vLLM.
        asked = both[-1] if path.startswith(_GENERATE) else body
        names = next((names for part, names in _LIMITS.items() if part in path), _OTHER_LIMITS)
        most = [costs.number(asked[name]) for name in names if asked.get(name) is not None]
        entries += prompts * max(0, *most, 0 if most else _UNLIMITED) * (1 + shown)
    of_prompt = max(_number(each, "prompt_logprobs") for each in both)
    if body.get("echo"):
        of_prompt = max(of_prompt, shown)
    if of_prompt:
        entries += math.ceil(sum(_tokens(body))) * (1 + of_prompt)
    repeated = copies * prompts if copies * prompts > 1 and not pooling else 0
    vectors = prompts * _OF_VECTOR if pooling else 0
    return copies * entries * _OF_ENTRY + repeated * _characters(body) * _OF_COPY + vectors


def _shown(asked: Mapping[str, Any]) -> int:
    """Return the number of log probabilities for each token of an answer, 0 for none."""
    given = asked.get("logprob_token_ids")
    listed = len(given) if isinstance(given, list) else 0
    return max(listed, *(_number(asked, name) for name in ("logprobs", "top_logprobs")))


def _number(asked: Mapping[str, Any], name: str) -> int:
    """Return a number of log probabilities. A number below zero means all, which vLLM refuses unless it is set up."""
    value = asked.get(name)
    return 0 if value is None or value is False else max(1, costs.number(value))


def _characters(body: Mapping[str, Any]) -> int:
    """Return the characters of all names and texts besides the prompts."""
    waiting: list[Any] = [value for name, value in body.items() if name not in costs.READ]
    count = 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            count += len(value)
        elif isinstance(value, dict):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return count


def _tokens(body: Mapping[str, Any]) -> Iterator[float]:
    """Yield the tokens of all prompts, or the most that a text can have."""
    for text in costs.texts(body):
        yield len(text) / _OF_TOKEN if text.isascii() else len(text.encode())
    waiting = [value for name, value in body.items() if name in costs.READ or name.endswith("token_ids")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, int):
            yield 1
        elif isinstance(value, list):
            waiting += value
