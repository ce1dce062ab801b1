# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The smoke test's requests to a new pooling model, and the validation of its vectors and scores.

A trained model places two sentences with the same meaning closer together than an unrelated one, and scores the
relevant document higher. A model with random weights does neither, but equal texts get equal results and other texts
others (``meaning`` false).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.health import probe
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import AnswerError

#: Two sentences with one meaning, an unrelated one, and the first one again.
_NEAR, _UNRELATED, _AGAIN = 1, 2, 3
_SENTENCES = (
    "The cat sleeps on the sofa in the living room.",
    "A cat is asleep on the living room couch.",
    "Parliament raised the tax on imported steel last year.",
    "The cat sleeps on the sofa in the living room.",
)
_QUERY = "What is the capital of France?"
#: The relevant document is not the first: a server that ignores the query may keep the order.
_RELEVANT = 1
_DOCUMENTS = (
    "Whales are mammals that live in the sea.",
    "Paris is the capital and the largest city of France.",
    "The recipe needs two eggs and a spoon of sugar.",
    "Whales are mammals that live in the sea.",
)
#: Equal texts in one batch may differ in the last bits: kernels round by position. In bfloat16 a number has 8 bits.
_SAME_COSINE, _SAME_SCORE = 0.995, 0.02
#: A vector of zeros has no direction.
_LEAST_NORM = 1e-6
#: Maximum characters of an answer: four vectors of 16384 numbers with 30 characters each.
_MOST = 4 * 1024**2
_MOST_NUMBERS = 65536
_SHOWN = 300


#: The lines of an answer for people, and its problems, a sentence each.
Result = tuple[list[str], list[str]]


def question(kind: str, model: str) -> tuple[str, dict[str, Any]]:
    """Return path and body of the request."""
    if kind == "embed":
        return "/v1/embeddings", {"model": model, "input": list(_SENTENCES), "encoding_format": "float"}
    return "/v1/rerank", {"model": model, "query": _QUERY, "documents": list(_DOCUMENTS)}


def judge(kind: str, text: str, dimension: int, meaning: bool) -> Result:
    """Return the result of an answer.

    ``dimension``: of each vector, 0 for any. Raises AnswerError for an invalid one.
    """
    return _embedding(vectors(text), dimension, meaning) if kind == "embed" else _reranking(scores(text), meaning)


def vectors(text: str) -> list[list[float]]:
    """Return the vectors of an answer in the order of the sentences.

    A number that is not finite is nan. Raises AnswerError.
    """
    found = [_numbers(each.get("embedding"), text) for each in _indexed(text, "data", len(_SENTENCES))]
    if len({len(vector) for vector in found}) != 1:
        raise AnswerError(
            f"the vectors have {', '.join(str(len(vector)) for vector in found)} numbers, expected equal ones"
        )
    return found


def scores(text: str) -> list[float]:
    """Return the scores of an answer in the order of the documents.

    One that is not finite is nan. Raises AnswerError.
    """
    return [_number(each.get("relevance_score"), text) for each in _indexed(text, "results", len(_DOCUMENTS))]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors with a norm above 0."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def _embedding(found: Sequence[Sequence[float]], dimension: int, meaning: bool) -> Result:
    size = len(found[0])
    lines = [f"embedding: {len(found)} vectors of {size} numbers"]
    problems = []
    if dimension and size != dimension:
        problems.append(f"the vectors have {size} numbers, expected {dimension}, the size of the model")
    if wrong := sum(not math.isfinite(number) for vector in found for number in vector):
        problems.append(f"{wrong} of {size * len(found)} are {probe.NOT_FINITE}")
        return lines, problems
    norms = [math.hypot(*vector) for vector in found]
    lines[0] += f", norms {min(norms):.3g} to {max(norms):.3g}"
    if min(norms) < _LEAST_NORM or not math.isfinite(max(norms)):
        return lines, [*problems, f"the norms are {min(norms):.3g} to {max(norms):.3g}, expected numbers above 0"]
    near, unrelated, again = (cosine(found[0], found[index]) for index in (_NEAR, _UNRELATED, _AGAIN))
    lines.append(
        f"cosine of equal sentences {again:.4f}, of equal meaning {near:.4f}, of unrelated sentences {unrelated:.4f}"
    )
    if again < _SAME_COSINE:
        problems.append(f"two vectors of the same text have the cosine {again:.4f}, expected at least {_SAME_COSINE}")
    if meaning and near <= unrelated:
        problems.append(
            f"two sentences of equal meaning have the cosine {near:.4f}, unrelated ones {unrelated:.4f}, "
            f"expected a smaller one: {_UNTRAINED}"
        )
    if not meaning and found[0] == found[_UNRELATED]:
        problems.append("different texts have the same vector")
    return lines, problems


#: For models with random weights, such as those of tests.
_UNTRAINED = "set vllm_serve_smoke_meaning: false for an untrained model"


def _reranking(found: Sequence[float], meaning: bool) -> Result:
    lines = ["scores: " + ", ".join(f"{score:.4f}" for score in found)]
    if wrong := sum(not math.isfinite(score) for score in found):
        return lines, [f"{wrong} of {len(found)} scores are {probe.NOT_FINITE}"]
    problems = []
    if abs(found[0] - found[_AGAIN]) > _SAME_SCORE * max(1.0, abs(found[0])):
        problems.append(f"two equal documents have the scores {found[0]:.4f} and {found[_AGAIN]:.4f}")
    others = [score for index, score in enumerate(found) if index != _RELEVANT]
    if meaning and found[_RELEVANT] <= max(others):
        problems.append(
            f"the relevant document has the score {found[_RELEVANT]:.4f}, another one {max(others):.4f}: {_UNTRAINED}"
        )
    if not meaning and len(set(found)) == 1:
        problems.append("different documents have the same score")
    return lines, problems


def _indexed(text: str, key: str, count: int) -> list[dict[str, Any]]:
    """Return the entries of an answer's list in the order of their index. Raises AnswerError."""
    try:
        body = bounded_json.load(text, _MOST)
    except ValueError as error:
        raise AnswerError(f"the answer is not JSON, because {error}: {text[:_SHOWN]}") from error
    entries = body.get(key) if isinstance(body, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise AnswerError(f"no list {key}: {text[:_SHOWN]}")
    found = {index: each for each in entries if isinstance(index := each.get("index"), int)}
    if len(entries) != count or sorted(found) != list(range(count)):
        raise AnswerError(f"{len(entries)} entries in {key}, expected one for each of {count} texts: {text[:_SHOWN]}")
    return [found[index] for index in range(count)]


def _numbers(value: Any, text: str) -> list[float]:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_NUMBERS:
        raise AnswerError(f"an embedding is not a list of 1 to {_MOST_NUMBERS} numbers: {text[:_SHOWN]}")
    return [_number(each, text) for each in value]


def _number(value: Any, text: str) -> float:
    """Return a number. JSON has none for NaN, so that some servers return null."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AnswerError(f"{str(value)[:40]!r} is not a number: {text[:_SHOWN]}")
    return float(value)
