"""JSON that another machine, a model or a user wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_json


def nested(levels: int, begin: str = "[", end: str = "]") -> str:
    return begin * levels + end * levels


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        ('{"a": [1, -2.5, "b"]}', {"a": [1, -2.5, "b"]}),
        ("9" * 40, int("9" * 40)),
        ("1e308", 1e308),
        (f"[{nested(30)}, {nested(3)}]", None),
        ('{"a":' * 31 + "{}" + "}" * 31, None),
    ],
)
def test_values_of_the_usual_size_are_read(text: str, value: Any) -> None:
    found = bounded_json.load(text, len(text))
    assert found == value or value is None
    with pytest.raises(ValueError, match="it is longer than"):
        bounded_json.load(text, len(text) - 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "[-Infinity]",
        "1e999",
        "9" * 41,
        "-" + "9" * 41,
        nested(33),
        nested(1000),
        # Deeper than Python's parser can read.
        nested(200_000),
        f"[1, {nested(33)}]",
        '{"a":' * 33 + "1" + "}" * 33,
        f'{{"a": 1, "b": {nested(33)}}}',
    ],
    ids=lambda text: text[:20],
)
def test_what_other_parsers_refuse_or_fail_at_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        bounded_json.load(text, 1 << 20)


def test_only_the_objects_of_a_list_are_mappings() -> None:
    assert bounded_json.mappings([{"a": 1}, 2, [{}], {}]) == [{"a": 1}, {}]
    assert bounded_json.mappings({"a": {}}) == bounded_json.mappings("[{}]") == []


@pytest.mark.parametrize(
    ("text", "mapping", "listed"),
    [
        ('{"a": 1}', {"a": 1}, "is not a JSON list"),
        ("[1]", "is not a JSON object", [1]),
        ("1", "is not a JSON object", "is not a JSON list"),
        ("null", "is not a JSON object", "is not a JSON list"),
        ("{", "is not JSON", "is not JSON"),
        ('{"a": "too long"}', "is not JSON", "is not JSON"),
        (None, None, None),
    ],
)
def test_a_file_has_an_object_or_a_list(tmp_path: Path, text: str | None, mapping: Any, listed: Any) -> None:
    path = tmp_path / "file.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    for read, expected in ((io_json.json_file, mapping), (io_json.json_list, listed)):
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=f"file.json {expected}"):
                read(str(path), 10)
        else:
            assert read(str(path), 10) == expected


def test_the_index_of_a_large_model_is_read(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    path.write_bytes(b"{}".ljust(1 << 25))
    assert io_json.json_file(str(path)) == {}
    path.write_bytes(b"{}".ljust((1 << 25) + 1))
    with pytest.raises(ValueError, match="it is longer than 33554432 bytes"):
        io_json.json_file(str(path))
