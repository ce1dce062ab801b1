"""The smoke test of a pooling model: vectors and scores, their shape, numbers and meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.health import probe, smoke_pooling
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import AnswerError

#: Of two near sentences, an unrelated one, and the first one again.
VECTORS = [[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
SCORES = [0.1, 0.9, 0.2, 0.1]


def embedded(vectors: list[Any]) -> str:
    return json.dumps({"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]})


def ranked(scores: list[Any]) -> str:
    """Return an answer in the order of the scores, as the API returns it."""
    found = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    return json.dumps({"results": sorted(found, key=lambda each: -(each["relevance_score"] or 0))})


def judge(kind: str, results: list[Any], dimension: int = 3, meaning: bool = True) -> list[str]:
    text = embedded(results) if kind == "embed" else ranked(results)
    return smoke_pooling.judge(kind, text, dimension, meaning)[1]


def test_good_results_have_no_problem() -> None:
    assert judge("embed", VECTORS) == judge("embed", VECTORS, 0) == judge("rerank", SCORES) == []
    lines, _problems = smoke_pooling.judge("embed", embedded(VECTORS), 3, True)
    assert lines[0] == "embedding: 4 vectors of 3 numbers, norms 0.906 to 1"


@pytest.mark.parametrize(
    ("kind", "results", "found"),
    [
        ("embed", [[None, 0.0, 0.0], *VECTORS[1:]], "1 of 12 are numbers that are not finite"),
        ("embed", [[0.0] * 3, *VECTORS[1:]], "the norms are 0 to 1"),
        ("embed", [*VECTORS[:3], [0.0, 0.0, 1.0]], "two vectors of the same text have the cosine 0.0000"),
        ("embed", [VECTORS[0], VECTORS[2], VECTORS[1], VECTORS[0]], "vllm_serve_smoke_meaning: false"),
        ("rerank", [None] * 4, "4 of 4 scores are numbers that are not finite"),
        ("rerank", [0.1, 0.9, 0.2, 0.5], "two equal documents have the scores 0.1000 and 0.5000"),
        ("rerank", [0.1, 0.2, 0.9, 0.1], "the relevant document has the score 0.2000, another one 0.9000"),
    ],
)
def test_wrong_results_are_problems(kind: str, results: list[Any], found: str) -> None:
    (problem,) = judge(kind, results)
    assert found in problem


def test_the_dimension_is_compared() -> None:
    (problem,) = judge("embed", VECTORS, 4)
    assert problem == "the vectors have 3 numbers, expected 4, the size of the model"


def test_random_weights_need_no_meaning_but_different_results() -> None:
    assert judge("embed", [VECTORS[0], VECTORS[2], VECTORS[1], VECTORS[0]], meaning=False) == []
    assert judge("rerank", [0.1, 0.2, 0.9, 0.1], meaning=False) == []
    assert judge("embed", [VECTORS[0]] * 4, meaning=False) == ["different texts have the same vector"]
    assert judge("rerank", [0.5] * 4, meaning=False) == ["different documents have the same score"]


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("embed", "no", "the answer is not JSON"),
        ("embed", '{"data": [NaN]}', "NaN is not a number"),
        ("embed", "[]", "no list data"),
        ("embed", '{"data": [1]}', "no list data"),
        ("embed", embedded(VECTORS[:3]), "3 entries in data, expected one for each of 4 texts"),
        ("embed", embedded([*VECTORS[:3], []]), "not a list of 1 to 65536 numbers"),
        ("embed", embedded([*VECTORS[:3], [1.0]]), "the vectors have 3, 3, 3, 1 numbers"),
        ("embed", embedded([*VECTORS[:3], ["a", 0, 0]]), "'a' is not a number"),
        ("rerank", json.dumps({"results": [{"index": 0, "relevance_score": 1}] * 4}), "4 entries in results"),
        ("rerank", ranked([True, *SCORES[1:]]), "'True' is not a number"),
    ],
)
def test_other_answers_are_refused(kind: str, text: str, found: str) -> None:
    with pytest.raises(AnswerError, match=found):
        smoke_pooling.judge(kind, text, 3, True)


def test_the_requests() -> None:
    assert smoke_pooling.question("embed", "m")[0] == probe.request("embed", "m")[0] == "/v1/embeddings"
    assert smoke_pooling.question("rerank", "m")[0] == probe.request("rerank", "m")[0] == "/v1/rerank"
    assert list(probe.requests("m")) == list(probe.ANSWERS) == ["generate", "embed", "rerank"]
