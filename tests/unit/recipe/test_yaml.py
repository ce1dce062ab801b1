"""Tests of the reading of a recipe's YAML: plain data, and one problem for everything else."""

from __future__ import annotations

import time

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils.recipe_yaml import load

BOMB = "a: &a [x,x]\n" + "".join(
    f"{name}: &{name} [*{last},*{last}]\n" for last, name in zip("abcdefghi", "bcdefghij", strict=True)
)
REFUSED = {
    "an empty file": ("", "not a readable file"),
    "a bomb of aliases": (BOMB, "line 1: an anchor or alias"),
    "a Python object": ("a: !!python/object/apply:os.system [id]", "line 1: a tag"),
    "a tag": ("a: !vault x", "line 1: a tag"),
    "two documents": ("a: 1\n---\nb: 2\n", "line 2: a second document"),
    "many values": ("a: [" + "1," * 2000 + "]", "more than 1000 values"),
    "deep nesting": ("[" * 5000, "more than 6 levels"),
    "10 MB": ("a: " + "x" * 10_000_000, "has 10000003 characters"),
    "invalid YAML": ("a: [1", "line 1: "),
    "a control character": ("a: \x00", "special characters are not allowed"),
    "an impossible date": ("a: 2026-13-45", "ValueError"),
    "a hexadecimal number": ("a: 0x" + "f" * 5000, "line 1: a number of 5002 characters"),
    "a number": ("a: " + "9" * 4000, "line 1: a number of 4000 characters"),
    "a mapping as key": ("{a: 1}: 2", "unhashable"),
}


@pytest.mark.parametrize(("text", "found"), REFUSED.values(), ids=REFUSED)
def test_other_yaml_is_one_problem(text: str, found: str) -> None:
    begin = time.process_time()
    data, problems = load(text, "r.yaml")
    assert (data, len(problems)) == (None, 1)
    assert found in str(problems[0])
    assert len(str(problems[0])) < 300
    assert time.process_time() - begin < 5, "it took too long"


def test_plain_yaml_is_its_data() -> None:
    assert load("a: 1\nb: [x, {c: '2'}]\nd: |\n  e\n  f\n", "r.yaml") == (
        {"a": 1, "b": ["x", {"c": "2"}], "d": "e\nf\n"},
        [],
    )


def test_template_syntax_is_text() -> None:
    assert load('a: \'{{ lookup("pipe", "id") }}\'', "r.yaml")[0] == {"a": '{{ lookup("pipe", "id") }}'}


@pytest.mark.parametrize("text", ["---\n", "[]\n", "{}\n"])
def test_a_document_without_keys_is_a_recipe_without_keys(text: str) -> None:
    assert load(text, "r.yaml") == ({}, [])
