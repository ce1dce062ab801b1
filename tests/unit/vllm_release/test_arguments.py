"""The values of vLLM's arguments as text and numbers."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0", 0),
        ("0.85", 0.85),
        (".5", 0.5),
        ("32768", 32768),
        ("1k", 1000),
        ("128k", 128_000),
        ("128K", 131_072),
        ("2m", 2_000_000),
        ("2M", 2_097_152),
        ("1.5g", 1_500_000_000),
        ("1.5G", 1_610_612_736),
        ("auto", None),
        ("-1", None),
        ("1e3", None),
        ("1T", None),
        ("", None),
        (True, None),
        (False, None),
        (None, None),
    ],
)
def test_a_suffix_is_decimal_in_lower_case_and_binary_in_upper_case(value: Any, number: float | None) -> None:
    assert Arguments({"--max-model-len": value}).number("--max-model-len") == number


@pytest.mark.parametrize(
    ("value", "text"),
    [("fp8", "fp8"), (True, "True"), (False, ""), (None, ""), (["a", 2], "a 2"), ({"mode": 3}, '{"mode": 3}')],
)
def test_each_form_of_a_value_is_text(value: Any, text: str) -> None:
    assert Arguments({"--x": value}).argument("--x") == text
    assert Arguments({}).argument("--x") == ""


@pytest.mark.parametrize(
    ("values", "method", "given"),
    [
        ({}, "", []),
        ({"--speculative-config": '{"method": "mtp"}'}, "mtp", ["--speculative-config"]),
        ({"--speculative-config": {"method": "mtp"}}, "mtp", ["--speculative-config"]),
        ({"--speculative-config.method": "mtp"}, "mtp", ["--speculative-config.method"]),
        ({"--spec-method": "mtp"}, "mtp", ["--spec-method"]),
        ({"--speculative-config": '{"method": null}'}, "", ["--speculative-config"]),
        # The parser of the arguments reports these.
        ({"--speculative-config": "{"}, "", ["--speculative-config"]),
        ({"--speculative-config": "[]"}, "", ["--speculative-config"]),
        ({"--speculative-config": None, "--speculative-configuration": "x"}, "", []),
    ],
)
def test_a_member_is_in_a_json_object_behind_a_dot_or_an_option(
    values: dict[str, Any], method: str, given: list[str]
) -> None:
    arguments = Arguments(values)
    assert (arguments.member("--speculative-config", "method"), arguments.speculative()) == (method, given)
