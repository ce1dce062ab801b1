"""Untrusted model files: the plan ends quickly with its own problems, and copies only single words from the files."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_values import nested
from run_module import run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import Inputs, MemoryNode
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model import parameter_bytes, quantization
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_model
from ansible_collections.gb10.cluster.plugins.module_utils.rules import context as rules_context

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model_configs.json").read_text(encoding="utf-8")
)
NODES = [MemoryNode(f"spark{number}", number == 1, 119 << 30) for number in (1, 2)]
EVIL = "{{ lookup('ansible.builtin.pipe', 'id') }}\n"
VALUES = nested(
    st.none()
    | st.booleans()
    | st.sampled_from(
        [
            -1,
            0,
            1,
            10**9,
            10**39,
            1e300,
            -0.5,
            "",
            EVIL,
            "re:(a+)+$",
            "re:(",
            "re:.*",
            "*[z-a]",
            "\u00b2",
            "float",
            "fp8",
            "modelopt",
        ]
    )
    | st.text(max_size=5),
    st.sampled_from(["weights", "num_bits", "type", "a"]),
    max_size=3,
    max_leaves=5,
)
KEYS = sorted(
    {key for config in CONFIGS.values() for key in config} | {"text_config", "thinker_config", "layers_block_type"}
)
QUANTIZATION = [
    "quant_method",
    "quant_algo",
    "config_groups",
    "bits",
    "w_bit",
    "group_size",
    "kv_cache_scheme",
    "ignore",
    "exclude_modules",
]


def judged(config: Any) -> None:
    """Run every reader of a config.json."""
    found = quantization.quantization_of(config)
    said = [found.scheme, found.kind, found.dtype, found.kv_dtype]
    said += [model_config.family(config), rules_context._model({}, config).type]
    assert all(re.fullmatch(r"[\w.-]{0,64}", word) for word in said)
    try:
        shape = model_shape.shape(config)
        memory_plan.explain(memory_plan.plan(Inputs(shape, NODES, tensor=2, kv_dtype="nvfp4")))
    except ProblemsError as error:
        assert all(str(problem).isprintable() and len(str(problem)) < 500 for problem in error.problems), str(error)


@settings(max_examples=30)
@given(st.sampled_from(sorted(CONFIGS)), st.sampled_from(KEYS), VALUES)
def test_any_key_may_hold_anything(name: str, key: str, value: Any) -> None:
    judged(CONFIGS[name] | {key: value})
    judged(value if isinstance(value, dict) else {"text_config": value})


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(QUANTIZATION), VALUES, max_size=4))
def test_so_may_what_it_says_of_quantisation(found: dict[str, Any]) -> None:
    judged(CONFIGS["Llama-3.1-8B"] | {"quantization_config": found})


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["a", "b.safetensors"]), st.integers(0, 99), max_size=2), VALUES, VALUES)
@example({}, {"total_size": 10**39}, {"x": "../../etc/shadow"})
def test_an_index_of_anything(sizes: dict[str, int], metadata: Any, shards: Any) -> None:
    size, reason = model_config.checkpoint(sizes, {"metadata": metadata, "weight_map": shards})
    assert (size is None or 0 < size < 10**15) and reason.isprintable() and len(reason) < 400


@pytest.mark.parametrize(
    "more",
    [
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": 2**31, "num_key_value_heads": 2**31},
        {"layer_types": ["full_attention"] * 100_000},
        {"hybrid_override_pattern": "M" * 10**6, "model_type": "nemotron_h"},
        {"sliding_window": 8, "model_type": "gemma3", "sliding_window_pattern": 0},
        {"num_key_value_heads": 0},
        {"head_dim": 0},
        {"vocab_size": -1},
    ],
    ids=lambda more: next(iter(more)),
)
def test_dimensions_that_no_model_has_are_refused_at_once(more: dict[str, Any]) -> None:
    before = time.process_time()
    with pytest.raises(ProblemsError) as caught:
        model_shape.shape(CONFIGS["Llama-3.1-8B"] | more)
    assert any(key in str(caught.value) for key in more if key not in ("model_type", "sliding_window"))
    assert time.process_time() - before < 2


def quantised(*ignore: str) -> parameter_bytes.Stored:
    return model_shape.shape(
        CONFIGS["Llama-3.1-8B"] | {"quantization_config": {"quant_method": "fp8", "ignore": list(ignore)}}
    ).stored


@pytest.mark.parametrize(
    "expression",
    [
        "re:.*self_attn.*",
        "re:.*self_attn.o_proj$",
        r"re:model\.layers\.\d+\.self_attn\..*",
        r"re:.*(self_attn|linear_attn)\.(q|k|v|o)_proj",
        "re:^model.layers.[0-9]+.self_attn",
        "re:.*lm_head|.*self_attn.*",
    ],
)
def test_expressions_that_quantisers_write(expression: str) -> None:
    stored = quantised(expression)
    assert (float(stored.attention), float(stored.mlp), stored.known) == (2, 1, True)


@pytest.mark.parametrize(
    "expression", ["re:(a+)+$", r"re:(.*)*\1", "re:(?!x).*", "re:(", "re:" + "(a|b)" * 30, "re:" + "x" * 999]
)
def test_an_expression_that_is_more_is_not_run(expression: str) -> None:
    """The figures are then marked as unknown. Python's own matcher needs exponential time for the first expression."""
    before = time.process_time()
    stored = quantised(expression)
    assert (float(stored.attention), stored.known) == (1, False)
    assert time.process_time() - before < 2


def test_thousands_of_expressions_with_choices_are_not_expanded() -> None:
    """708 KB took 13 s."""
    before = time.process_time()
    assert quantised(*(f"re:{'(a|b)' * 6}{number}" for number in range(4000))).known is False
    assert time.process_time() - before < 2


def test_as_many_patterns_as_can_be_take_seconds() -> None:
    before = time.process_time()
    assert quantised(*(f"*l*y*r*{number}z" for number in range(256))).known is True
    assert time.process_time() - before < 5
    assert quantised(*(f"*l*y*r*{number}z" for number in range(257))).known is False


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 10_000_000, "it is longer than 4194304 bytes"),
        (b"[" * 100_000, "it is nested deeper than 32"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "it is nested deeper than 32"),
        (b'{"hidden_size": NaN}', "NaN is not a number"),
        (b'{"hidden_size": 1e999}', "1e999 is too large a number"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "is too large a number"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "is not a JSON object"),
    ],
    ids=["long", "open", "deep", "NaN", "infinite", "digits", "bytes", "list"],
)
def test_a_file_has_limits(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        io_model.model(str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/config.json is n")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    answer = run_module("vllm_lint", {"argv": [], "model": str(tmp_path), "release": "0.32.0"})
    assert answer["failed"] and "config.json is not JSON: it is not a regular file" in answer["msg"]


SEPARATE = {
    "producer": {"name": "modelopt"},
    "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
}


def test_the_quantization_in_a_file_of_its_own_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nemotron_h", "torch_dtype": "bfloat16"}', encoding="utf-8")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(SEPARATE), encoding="utf-8")
    found = io_model.model(str(tmp_path))["model"]
    read = quantization.quantization_of(found)
    assert (read.scheme, read.kv_dtype) == ("nvfp4", "fp8")
    assert "exclude_modules" not in found["quantization_config"]


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, SEPARATE),
        ({"quantization_config": None}, SEPARATE),
        *(({"model_type": "llama"}, found) for found in (None, {}, {"quantization": "fp8"}, {"quantization": [1]})),
    ],
)
def test_the_quantization_in_config_json_wins_and_another_file_changes_nothing(
    own: dict[str, Any], found: dict[str, Any] | None
) -> None:
    assert quantization.with_separate(own, found) == own
    assert quantization.with_separate(None, found) is None
