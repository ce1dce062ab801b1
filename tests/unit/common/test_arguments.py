"""Words that vLLM's parser moves."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ("--x 0.5 --y=-0.5 --name=a.b", []),
        ("--hf-overrides.a.b c --y", []),
        ("--hf-overrides.a=b --y", []),
        ("-sc.model+ c", []),
        ("-O.mode=3", []),
        ("--x -5", []),
        ('-O{"a":"b.c"} --y', []),
        ("-O3 --y", []),
        ("-O-0.5 --y", [0]),
        ("-O=--a.b=c -0", [0]),
        ("--a.b -0 --y", []),
        # It takes the name of the next option, also of an owner's behind a recipe.
        ("--x -0.5 --y", [1]),
        ("--x y -0.5", [2]),
        ("--x -.5=y", [1]),
        ("--x.y", [0]),
        ("--x.y --z", [0]),
        ("--x.y. z", []),
        ("-.x y", [0]),
        # The last word becomes a value of --x.
        ("--x --a.b c d", [1]),
        ("--x --a.b=c d", [1]),
    ],
)
def test_a_word_that_vllm_would_move_is_found(words: str, places: list[int]) -> None:
    assert list(arguments.moved(words.split())) == places
