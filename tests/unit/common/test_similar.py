"""Names that a user may have meant: of options, models and variables."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import similar

PARSERS = ["cohere_command3", "cohere_command4", "granite4", "hermes", "qwen3_coder", "qwen3_xml"]
MODELS = ["gemma-2-27b-it", "gemma-4-26B-A4B-NVFP4", "gemma-4-31B-IT-NVFP4", "Qwen3.6-27B-FP8", "gpt-oss-120b"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cohere", ["cohere_command3", "cohere_command4"]),
        ("qwen3", ["qwen3_coder", "qwen3_xml"]),
        ("granite", ["granite4"]),
        ("hermez", ["hermes"]),
        ("x", []),
        ("", []),
        ("(.*", []),
    ],
)
def test_a_beginning_precedes_a_similar_name(name: str, expected: list[str]) -> None:
    assert similar.close(name, PARSERS, most=3) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemma-4-26B-A4B-it", ["gemma-4-26B-A4B-NVFP4"]),
        ("Qwen3.6-27B", ["Qwen3.6-27B-FP8"]),
        ("Qwen2-27B", []),
        ("other-4-26B-A4B-NVFP4", []),
        ("", []),
    ],
)
def test_a_model_with_another_number_is_another_model(name: str, expected: list[str]) -> None:
    assert similar.of_parts(name, MODELS, 2, 0.6) == expected


def test_a_much_worse_name_than_the_best_one_is_not_suggested() -> None:
    names = ["a b c d e", "a b c d x", "a b c", "a y z", "A-B-C-D-E"]
    assert similar.of_parts("a b c d e", names, 5, 0.1) == ["A-B-C-D-E", "a b c d e"]
    assert similar.of_parts("a b c d f", names, 2, 0.1) == ["A-B-C-D-E", "a b c d e"]
    assert similar.of_parts("a b c d f", names, 5, 0.1) == ["A-B-C-D-E", "a b c d e", "a b c d x", "a b c"]
    assert (
        similar.of_parts("a b", ["a b c"], 1, 2 / 3) == ["a b c"] and similar.of_parts("a b", ["a b c"], 1, 0.67) == []
    )
    assert similar.close("tokn", ["token", "tokens"]) == ["token"], "one by default"
    assert similar.close("abcde", ["abcxy"]) == ["abcxy"] and similar.close("abcdef", ["abcxyz"]) == []
