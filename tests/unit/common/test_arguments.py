"""The options in an argv, and the words that vLLM's parser moves."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", []),
        ("a b", [("", "a b", "a b")]),
        ("--max_model_len 5 --port=1", [("--max-model-len", "5", "--max_model_len 5"), ("--port", "1", "--port=1")]),
        ("--a_b.c_d=e_f", [("--a-b.c-d", "e_f", "--a_b.c_d=e_f")]),
        ("m -x_y 2 3", [("", "m", "m"), ("-x_y", "2 3", "-x_y 2 3")]),
        ("--x -1 -0.5 -tp 2", [("--x", "-1 -0.5", "--x -1 -0.5"), ("-tp", "2", "-tp 2")]),
        ("--x= -.5 --y", [("--x", "", "--x="), ("-.5", "", "-.5"), ("--y", "", "--y")]),
        ("--x=a b", [("--x", "a b", "--x=a b")]),
    ],
)
def test_an_option_has_its_name_its_values_and_its_words(words: str, options: list[tuple[str, str, str]]) -> None:
    found = arguments.options(words.split())
    assert [(name, " ".join(values), " ".join(all_words)) for name, values, all_words in found] == options


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
