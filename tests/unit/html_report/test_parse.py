"""Records of the page, which people can edit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.html_report import parse

#: Values and shapes, and the values in these shapes.
VALUES: list[tuple[object, Any, object]] = [
    (7, str, "7"),
    ([7], str, ""),
    (7.4, int, 7),
    ("7", int, 0),
    (True, float, None),
    (-1, float, None),
    (1e13, float, None),
    (0.5, float, 0.5),
    ("yes", bool, False),
    ({"b": "x"}, [str], ["x"]),
    (None, [str], []),
    ([1] * 200, [int], [1] * 100),
    ({"a": {"b": 1}, "c": 2}, {"a": {"b": int, "d": str}}, {"a": {"b": 1, "d": ""}}),
    (None, {"a": {"b": float}}, {"a": {"b": None}}),
]


@pytest.mark.parametrize(("value", "shape", "expected"), VALUES)
def test_a_value_has_its_shape(value: object, shape: Any, expected: object) -> None:
    assert parse.shaped(value, shape) == expected


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 9}', '{"format": 1e999}', " " * 2**21])
@pytest.mark.parametrize("kind", [parse.GOLDEN, parse.BENCHMARK, parse.MATRIX])
def test_another_file_is_ignored(text: str, kind: parse.Kind) -> None:
    assert parse.record(text, kind).keys() == {"ignored"}


def test_a_record_has_all_keys_of_its_shape() -> None:
    found = parse.record(json.dumps({"format": 1, "date": "2026-11-26", "other": 1}), parse.GOLDEN)
    assert found.keys() == parse.GOLDEN[1].keys() and (found["date"], found["errors"]) == ("2026-11-26", [])
