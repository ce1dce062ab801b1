"""LoRA adapters: their memory, their folders, and where the plan refuses them."""

from __future__ import annotations

import pytest
from cluster_nodes import cluster_plan, mistakes, spark

from ansible_collections.gb10.cluster.plugins.module_utils.memory import adapters
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import shape

#: Two dense layers of 8 heads, 2 of them for keys and values.
DENSE = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 4096,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
LORA = ["--enable-lora", "--lora-modules", "mine=/srv/mine"]


def test_the_memory_is_that_of_both_matrices_of_each_layer() -> None:
    sides = {
        "q and o": 2 * 1024 + 2 * 1024,
        "k and v": 2 * 1024 + 2 * 256,
        "gate, up and down": 3 * 1024 + 3 * 4096,
    }
    expected = 2 * 16 * (2 * sum(sides.values()) + 2 * (1024 + 1000))
    assert adapters.Adapters(16, 1, 0).memory(shape(DENSE)) == expected
    assert adapters.Adapters(32, 2, 3).memory(shape(DENSE)) == 2 * 5 * expected


def test_each_expert_has_matrices_of_its_own() -> None:
    config = {
        **DENSE,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 512,
    }
    dense = {**config, "num_experts": 0}
    sparse = adapters.Adapters(1, 1, 0).memory(shape(config)) // 2
    # Two layers of 8 experts in place of one MLP, with a router.
    more = 8 * 3 * (1024 + 512) + (1024 + 8) - 3 * (1024 + 4096)
    assert sparse - adapters.Adapters(1, 1, 0).memory(shape(dense)) // 2 == 2 * more


def test_vllm_allocates_the_same() -> None:
    """The sum of all lora_*_stacked of vLLM 0.32.0's CPU build, with rank 32 and two adapters."""
    config = {
        **DENSE,
        "model_type": "qwen3_moe",
        "vocab_size": 502,
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    }
    assert adapters.Adapters(32, 2, 0).memory(shape(config)) == 5_309_952


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((False, 16, 1, 1), None),
        ((True, 0, 0, 0), adapters.Adapters(16, 1, 1)),
        ((True, 64, 4, 0), adapters.Adapters(64, 4, 4)),
        ((True, 64, 4, 8), adapters.Adapters(64, 4, 8)),
    ],
)
def test_vllms_defaults(given: tuple[bool, int, int, int], expected: adapters.Adapters | None) -> None:
    assert adapters.of_arguments(*given) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--lora-modules", "a=/srv/a", "b=/srv/b", "--seed", "1"], ["/srv/a", "/srv/b"]),
        (["--lora-modules=a=/srv/a"], ["/srv/a"]),
        (["--lora_modules", '{"name": "a", "path": "/srv/a", "base_model_name": "m"}'], ["/srv/a"]),
        (["--lora-modules", '[{"path": "/srv/a"}, {"path": 1}, 2]'], ["/srv/a"]),
        (["--lora-modules", "a=owner/name", "c"], []),
        (["--chat-template", "a=/srv/a"], []),
    ],
)
def test_the_folders_of_adapters(words: list[str], expected: list[str]) -> None:
    assert adapters.folders(words) == expected


def test_a_missing_folder_is_refused() -> None:
    node = spark(1, "head", gb10_vllm_extra_args=LORA)
    assert cluster_plan([node])[1] == []
    node["observed"]["missing_folders"] = ["/srv/mine"]
    (found,) = mistakes([node])
    assert found.path == "nodes[0].gb10_vllm_extra_args.--lora-modules"
    assert found.found == "/srv/mine is not a folder on spark1"
