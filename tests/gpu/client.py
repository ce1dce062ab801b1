# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client of a vLLM server's API; the model's served name is moe."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any


def request(url: str, path: str, body: Mapping[str, Any] | None = None, seconds: float = 180, key: str = "") -> Any:
    """Return a server's response, None if it is empty. Raises OSError."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=seconds) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def complete(url: str, opening: Sequence[int], tokens: int, key: str = "", seconds: float = 180) -> dict[str, Any]:
    """Return {tokens, logprobs, margins} of a completion.

    A margin is the logprob difference between the best and the second-best token.
    """
    body = {
        "model": "moe",
        "prompt": opening,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 2,
        "return_tokens_as_token_ids": True,
    }
    logprobs = request(url, "/v1/completions", body, seconds, key)["choices"][0]["logprobs"]
    best = [sorted(top.values(), reverse=True) for top in logprobs["top_logprobs"]]
    return {
        "tokens": [int(token.removeprefix("token_id:")) for token in logprobs["tokens"]],
        "logprobs": logprobs["token_logprobs"],
        "margins": [values[0] - values[1] for values in best],
    }


def recited(url: str, passages: Sequence[Mapping[str, list[int]]], key: str = "") -> int:
    """Return how many passages of moe.py a server completes with every token right."""
    return sum(
        complete(url, each["opening"], len(each["answer"]), key)["tokens"] == each["answer"] for each in passages
    )


def healthy(url: str) -> bool:
    """Return whether a server's /health succeeds."""
    try:
        request(url, "/health")
    except OSError:
        return False
    return True


def decode(url: str, opening: Sequence[int], tokens: int) -> tuple[float, float]:
    """Return (tokens per second after the first token, seconds to the first token) of a streamed answer."""
    body = {
        "model": "moe",
        "prompt": opening,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    question = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began, times = time.monotonic(), []
    with urllib.request.urlopen(question, timeout=180) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
    return (tokens - 1) / (times[-1] - times[0]), times[0] - began
