"""YAML that any reader parses to the same objects."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from exports import PLANS, exported
from hypothesis import example, given
from hypothesis import strategies as st
from json_values import nested

from ansible_collections.gb10.cluster.plugins.module_utils.export import render

#: Texts that YAML without quotes would change, and lines that a block would change.
WORDS = "yes|No|null|~|1e3|0x1|1_000|08|2026-11-23|=|<<|a: b|- a|a #b|| |%a\n|---\n|...\n".split("|")
BLOCKS = "\n|a\n|a\n\n|\na\n| a\n|a \nb\n|a\n\n  b\n|a\tb\n".split("|")
TEXT = st.text() | st.sampled_from([*WORDS, *BLOCKS])
VALUE = nested(st.none() | st.booleans() | st.integers() | TEXT, TEXT)


@given(st.dictionaries(TEXT, VALUE, min_size=1))
@example({"a": [[1], [], {}, [{"b": [[{}]]}]], "c": {"d": "x\ny\n"}, "e": ["x\ny\n", {"f": "x\n\ny\n"}]})
@example({"a": "\U0001f600 \x7f\x85 \ufeff\ud7ff", "\x00\x1b": 1})
def test_a_reader_gets_the_same_data(data: dict[str, Any]) -> None:
    assert yaml.safe_load(render.documents([data])) == data


@given(st.dictionaries(TEXT, VALUE, min_size=1))
def test_the_text_is_ascii_without_trailing_blanks(data: dict[str, Any]) -> None:
    text = render.documents([data, data])
    assert text.isascii() and text.endswith("\n")
    assert [line for line in text.split("\n") if line != line.rstrip()] == []
    assert list(yaml.safe_load_all(text)) == [data, data]


def test_programs_are_readable() -> None:
    assert render.documents([{"a": {"b.py": "import x\n\nx()\n"}, "c": ["--d=e", "f/g", 1, "1", None]}]).splitlines()[
        1:
    ] == [
        "---",
        "a:",
        "  b.py: |",
        "    import x",
        "",
        "    x()",
        "c:",
        '  - "--d=e"',
        "  - f/g",
        "  - 1",
        '  - "1"',
        "  - null",
    ]


@pytest.mark.parametrize("name", PLANS)
def test_the_programs_of_an_export_are_blocks(name: str) -> None:
    data = exported(PLANS[name])[0]["data"]
    text = render.documents([{"data": data}])
    assert [line for line in text.splitlines() if line.endswith("|")] == [f"  {key}: |" for key in data]
