# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of golden answers: requests, answers, records and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Options of the action vllm_golden that its module only documents.
ARGUMENTS: Mapping[str, Any] = {
    "directory": {"type": "path", "required": True},
    "result_file": {"type": "path", "default": ""},
    "renew": {"type": "bool", "default": False},
    "bounds": {
        "type": "dict",
        "options": {
            "tie": {"type": "float", "required": True},
            "distance": {"type": "float", "required": True},
            "perplexity_change": {"type": "float", "required": True},
            "perplexity": {"type": "float", "required": True},
            "strict": {"type": "bool", "required": True},
        },
    },
}
#: Relations of an answer to its record.
EQUAL, NEAR, DIFFERENT = "equal", "near", "different"


@dataclass(frozen=True)
class Answer:
    """An answer. ``prompt`` and ``tokens`` are token IDs; ``logprobs`` has the natural log-probability of each token.

    ``top`` has the log-probabilities of the likeliest tokens at each position. ``prompt`` is () if the server did not
    return it. ``text`` includes reasoning and tool calls.
    """

    text: str
    prompt: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float]
    top: Sequence[Mapping[int, float]]


@dataclass(frozen=True)
class Run:
    """All answers of a server by request. ``problems``: requests without a valid answer, and why.

    ``perplexity`` of the known text and draft ``acceptance`` (0 to 1) are None if unknown. ``notes``: requests that
    this server does not support.
    """

    answers: Mapping[str, Answer]
    perplexity: float | None
    acceptance: float | None
    vllm: str
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Identity:
    """A model: its name on Hugging Face Hub or its path, its revision ("" for a path), its quantization."""

    model: str
    revision: str
    quantization: str


@dataclass(frozen=True)
class Served:
    """The server of a plan, or of a launch record, which has a part of one. ``args``: of ``vllm serve``.

    ``root``: the origin of the model ``name``, as the server reports it.
    """

    identity: Identity
    kind: str
    name: str
    root: str
    vllm: str
    args: Sequence[str]
    url: str
    server_name: str


@dataclass(frozen=True)
class Record:
    """The accepted run of a model. ``date``: of the record, YYYY-MM-DD."""

    identity: Identity
    date: str
    run: Run


@dataclass(frozen=True)
class Bounds:
    """The accepted differences. The role golden documents and explains each."""

    tie: float
    distance: float
    perplexity_change: float
    perplexity: float
    strict: bool


@dataclass(frozen=True)
class Comparison:
    """An answer compared with its record.

    ``agreed`` tokens of ``total`` are equal. ``mean`` and ``largest`` are distances of log-probabilities. ``why``: the
    reason for a relation other than equal.
    """

    name: str
    relation: str
    agreed: int
    total: int
    mean: float
    largest: float
    why: str
