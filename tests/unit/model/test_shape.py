"""A model's dimensions and bytes, compared with its authors' figures.

The configurations are the models' config.json without keys that the code does not read. Exact checkpoint sizes are
``metadata.total_size`` of model.safetensors.index.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parameters import parameters

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.memory import kv_cache
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model import quantization
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model import weights as model_weights
from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import Kind

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model_configs.json").read_text(encoding="utf-8")
)
GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "published", "per_mille"),
    [
        ("Qwen2.5-72B", 145412407296, 0),  # total_size of Qwen/Qwen2.5-72B-Instruct
        ("Llama-3.1-70B", 141107412992, 0),  # total_size of meta-llama/Llama-3.1-70B
        ("Llama-3.1-8B", 16060522496, 0),  # total_size of meta-llama/Llama-3.1-8B
        ("Mixtral", 93405585408, 0),  # total_size of mistralai/Mixtral-8x7B-v0.1
        ("phi-4", 29319014400, 0),  # total_size of microsoft/phi-4
        ("gpt-oss-120b", int(60.8 * GIB), 5),  # OpenAI, gpt-oss model card, table 1
        ("Qwen3-30B-A3B", 61064245248, 0),  # total_size of Qwen/Qwen3-30B-A3B
    ],
)
def test_checkpoints_are_as_large_as_published(name: str, published: int, per_mille: int) -> None:
    assert abs(model_weights.checkpoint(model_shape.shape(CONFIGS[name])) - published) * 1000 <= published * per_mille


@pytest.mark.parametrize(
    ("name", "total", "active", "with_embedding"),
    [
        ("gpt-oss-120b", 116.83, 5.13, False),  # gpt-oss model card, table 1
        ("Mixtral", 46.7, 12.9, True),  # Mistral, "Mixtral of experts"
        ("DeepSeek-V3", 671, 37, True),  # DeepSeek-V3 technical report
        ("Qwen3-30B-A3B", 30.5, 3.3, True),  # model card
        ("Nemotron-3-Nano", 31.6, 3.2, False),  # NVIDIA, Nemotron 3 Nano's technical report
        ("DeepSeek-V2-Lite", 15.7, 2.4, False),  # model card
    ],
)
def test_parameters_are_as_many_as_published(name: str, total: float, active: float, with_embedding: bool) -> None:
    shape = model_shape.shape(CONFIGS[name])
    assert parameters(shape) / 1e9 == pytest.approx(total, rel=0.01)
    used = parameters(shape, active=True) + with_embedding * shape.embeddings
    assert used / 1e9 == pytest.approx(active, rel=0.025)
    assert sum(layer.experts for layer in shape.layers) / parameters(shape) > 0.9


@pytest.mark.parametrize(
    ("name", "published"), [("Gemma-4-26B-A4B-NVFP4", 18_782_360_732), ("Gemma-4-31B-NVFP4", 32_633_255_032)]
)
def test_gemma_4_has_the_published_bytes_with_its_vision_tower(name: str, published: int) -> None:
    """total_size of nvidia/Gemma-4-26B-A4B-NVFP4 and nvidia/Gemma-4-31B-IT-NVFP4; both have the same vision_config."""
    shape = model_shape.shape(CONFIGS[name])
    hidden, width, layers, positions, patch = 1152, 4304, 27, 2 * 10240, 3 * 16 * 16
    tower = layers * (4 * hidden * hidden + 3 * hidden * width) + (positions + patch + shape.hidden) * hidden
    # The rest are norms and the scales of whole matrices.
    assert model_weights.checkpoint(shape) + 2 * tower == pytest.approx(published, rel=0.0001)


@pytest.mark.parametrize(("name", "total"), [("gemma-2-9b", 9.24), ("Qwen3.5-35B-A3B", 35), ("GLM-4.5-Air", 106)])
def test_other_families_have_the_parameters_of_their_names(name: str, total: float) -> None:
    """Gemma 2's report, table 2; Qwen's model card; GLM-4.5's report."""
    assert parameters(model_shape.shape(CONFIGS[name])) / 1e9 == pytest.approx(total, rel=0.01)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (
            "Llama-3.1-8B",
            131072,
        ),  # 32 layers, 8 heads, key and value of 128, 2 bytes: 128 KiB, as NVIDIA and Meta publish
        ("Llama-3.1-70B", 327680),
        ("DeepSeek-V3", 70272),  # DeepSeek-V3 report: 61 layers of a latent of 512 and a rotary key of 64, 70.272 KB
        ("gpt-oss-120b", 73728),  # 36 layers, 8 heads of 64
        ("Qwen3-Next-80B", 24576),  # 12 of 48 layers, 2 heads of 256
        ("Nemotron-3-Nano", 6144),  # 6 of 52 layers, 2 heads of 128
        ("Gemma-4-31B-NVFP4", 901120),  # 50 layers with 16 heads of 256, 10 layers with 4 heads of 512
    ],
)
def test_bytes_that_a_token_leaves_in_the_cache(name: str, size: int) -> None:
    shape = model_shape.shape(CONFIGS[name])
    assert sum(kv_cache.layout(shape, 1, "bfloat16", "bfloat16", 4096).token_bytes) == size
    assert sum(kv_cache.layout(shape, 1, "fp8", "bfloat16", 4096).token_bytes) * 2 == size


@pytest.mark.parametrize(
    ("name", "kinds", "experts"),
    [
        ("gpt-oss-120b", {"sliding": 18, "full": 18}, (128, 4)),
        ("Qwen3-Next-80B", {"state": 36, "full": 12}, (512, 10)),
        ("Nemotron-3-Nano", {"state": 23, "full": 6, "none": 23}, (128, 6)),
        ("Gemma-4-26B-A4B-NVFP4", {"sliding": 25, "full": 5}, (128, 8)),
        ("DeepSeek-V3", {"mla": 61}, (256, 8)),
    ],
)
def test_layers_by_what_they_keep(name: str, kinds: dict[Kind, int], experts: tuple[int, int]) -> None:
    shape = model_shape.shape(CONFIGS[name])
    assert {kind: shape.of(kind) for kind in kinds} == kinds
    assert (len(shape.layers), shape.experts, shape.active_experts) == (sum(kinds.values()), *experts)


def test_windows_caches_and_layers_without_experts() -> None:
    oss, gemma, deepseek = (
        model_shape.shape(CONFIGS[name]) for name in ("gpt-oss-120b", "Gemma-4-26B-A4B-NVFP4", "DeepSeek-V3")
    )
    assert (oss.layers[0].kv_cache.window, gemma.layers[0].kv_cache.window, gemma.kv_dtype) == (128, 1024, "fp8")
    assert [layer.experts > 0 for layer in deepseek.layers[:4]] == [False, False, False, True]


@pytest.mark.parametrize(
    ("family", "more", "kinds"),
    [
        ("mistral", {}, "ssssss"),
        ("gemma2", {}, "sfsfsf"),
        ("gemma3_text", {}, "sssssf"),
        ("qwen2", {"use_sliding_window": False}, "ffffff"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 4}, "ffffss"),
        ("mistral", {"sliding_window": None}, "ffffff"),
    ],
)
def test_windows_that_the_family_implies(family: str, more: dict[str, Any], kinds: str) -> None:
    base = CONFIGS["Llama-3.1-8B"] | {"num_hidden_layers": 6, "sliding_window": 512, "model_type": family}
    assert "".join(layer.kv_cache.kind[0] for layer in model_shape.shape(base | more).layers) == kinds


def test_the_language_model_of_a_multimodal_one_counts() -> None:
    text = CONFIGS["Qwen3-30B-A3B"] | {"model_type": "qwen3_vl_moe_text"}
    whole = model_shape.shape(
        {"model_type": "qwen3_vl_moe", "text_config": text, "vision_config": {"hidden_size": 1152}}
    )
    assert whole.layers == model_shape.shape(CONFIGS["Qwen3-30B-A3B"]).layers


def test_a_tied_embedding_is_counted_once_and_read_as_the_output() -> None:
    tied, untied = (
        model_shape.shape(CONFIGS["Llama-3.1-8B"] | {"tie_word_embeddings": tied}) for tied in (True, False)
    )
    assert parameters(untied) - parameters(tied) == 128256 * 4096
    assert parameters(tied, active=True) == parameters(untied, active=True)


def test_everything_that_is_missing_is_named() -> None:
    with pytest.raises(ProblemsError) as caught:
        model_shape.shape({"model_type": "llama", "hidden_size": 64})
    expected = "intermediate_size max_position_embeddings num_attention_heads num_hidden_layers vocab_size"
    missing = {problem.path for problem in caught.value.problems}
    assert missing == {f"config.json {key}" for key in expected.split()}


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"layer_types": ["full_attention", "mamba"]}, "config.json layer_types"),
        ({"global_head_dim": 512}, "config.json global_head_dim"),
        ({"num_kv_shared_layers": 10}, "config.json num_kv_shared_layers"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M?"}, "config.json hybrid_override_pattern"),
        ({"attn_type_list": [1, 0] * 16}, "config.json attn_type_list"),
        ({"attn_type_list": 1}, "config.json attn_type_list"),
        # Qwen3.8-Flash-Next, whose other keys are those of Qwen3.5.
        ({"model_type": "qwen4_exp_text", "ple_layer_ids": [2]}, "config.json ple_layer_ids"),
        ({"model_type": "qwen4_exp_text", "hc_count": 4}, "config.json hc_count"),
    ],
)
def test_layers_of_a_kind_that_is_not_known_are_refused(more: dict[str, Any], path: str) -> None:
    with pytest.raises(ProblemsError) as caught:
        model_shape.shape(CONFIGS["Llama-3.1-8B"] | more)
    assert path in {problem.path for problem in caught.value.problems}


def test_a_list_of_full_attention_marks_nothing_unusual() -> None:
    plain = CONFIGS["Llama-3.1-8B"]
    assert model_shape.shape(plain | {"attn_type_list": [1] * 32}) == model_shape.shape(plain)


def groups(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("found", "scheme"),
    [
        (None, "none"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "other"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": 3}, "other"),
        ({"quant_method": "bitsandbytes"}, "other"),
        (groups(type="float", num_bits=8), "fp8"),
        (groups(type="float", num_bits=4, group_size=16), "nvfp4"),
        (groups(type="float", num_bits=4, group_size=32), "mxfp4"),
        (groups(type="int", num_bits=4, group_size=128), "int4"),
        (groups(type="int", num_bits=8), "int8"),
    ],
)
def test_scheme(found: dict[str, Any] | None, scheme: str) -> None:
    config = {} if found is None else {"quantization_config": found}
    schemes = [quantization.quantization_of(each).scheme for each in (config, {"text_config": config}, None)]
    assert schemes == [scheme, scheme, "unknown"]


@pytest.mark.parametrize(
    ("quantised", "expected"),
    [
        ({"quant_method": "fp8"}, 1),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
        ({"quant_method": "mxfp4"}, 0.53125),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.51953125),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, 0.578125),
    ],
)
def test_bytes_of_a_quantised_weight(quantised: dict[str, Any], expected: float) -> None:
    stored = model_shape.shape(CONFIGS["Llama-3.1-8B"] | {"quantization_config": quantised}).stored
    assert (float(stored.mlp), float(stored.attention), float(stored.plain)) == (expected, expected, 2)


@pytest.mark.parametrize(
    "ignore",
    [
        ["re:.*self_attn.*", "lm_head"],
        ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
        [f"model.layers.{index}.self_attn.{name}_proj" for index in range(32) for name in "qkvo"],
        ["model.layers.*self_attn*"],
    ],
)
def test_what_is_left_unquantised(ignore: list[str]) -> None:
    config = CONFIGS["Llama-3.1-8B"] | {
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignore}
    }
    stored = model_shape.shape(config).stored
    assert (float(stored.attention), float(stored.mlp)) == (2, 0.5625)


def test_a_part_of_the_layers_left_unquantised_counts_in_part() -> None:
    ignore = [f"model.layers.{index}.mlp.down_proj" for index in range(8)]
    config = CONFIGS["Llama-3.1-8B"] | {
        "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ignore}
    }
    assert float(model_shape.shape(config).stored.mlp) == (8 * 2 + 24 * 1) / 32


@pytest.mark.parametrize(
    ("sizes", "index", "expected"),
    [
        ({}, None, (None, "")),
        ({"a.safetensors": 7}, None, (7, "")),
        ({"a.safetensors": 7, "consolidated.safetensors": 8}, None, (7, "")),
        ({"consolidated.safetensors": 8}, None, (8, "")),
        ({"a": 995}, {"metadata": {"total_size": 1000}, "weight_map": {"x": "a"}}, (1000, "")),
        (
            {"a": 5},
            {"metadata": {"total_size": 9}, "weight_map": {"x": "a", "y": "b"}},
            (9, "1 of 2 files in the index are missing: 'b'"),
        ),
        ({"a": 5, "b": 9}, {"weight_map": {"x": "a"}}, (5, "")),
    ],
)
def test_bytes_of_a_folder(
    sizes: dict[str, int], index: dict[str, Any] | None, expected: tuple[int | None, str]
) -> None:
    assert model_config.checkpoint(sizes, index) == expected


@pytest.mark.parametrize(
    ("index", "size"), [(None, None), ({"metadata": {"total_size": 9}, "weight_map": {"x": "a", "y": "b"}}, 9)]
)
def test_pointers_of_git_lfs_have_no_bytes(index: dict[str, Any] | None, size: int | None) -> None:
    reason = "2 of the weights' files are pointers of Git LFS, not the weights: 'a', ..."
    assert model_config.checkpoint({"a": 130, "b": 130}, index, ["a", "b"]) == (size, reason)
