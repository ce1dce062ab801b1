"""LoRA adapters: their memory, their folders, and where the plan refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_nodes import cluster_plan, mistakes, spark

from ansible_collections.gb10.cluster.plugins.module_utils.facts import io_facts
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


def test_latent_attention_has_two_matrices_down_and_two_up() -> None:
    latent = {
        "q_lora_rank": 256,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    config = {**DENSE, "model_type": "deepseek_v2", **latent}
    up = 256 * 8 * (128 + 64) + 512 * 8 * (128 + 128) + 8 * 128 * 1024
    sides = {
        "q and k, v down": 2 * 1024 + 256 + 512 + 64,
        "up, and o": 2 * 1024 + up // 1024,
        "gate, up and down": 3 * 1024 + 3 * 4096,
    }
    expected = 2 * (2 * sum(sides.values()) + 2 * (1024 + 1000))
    assert adapters.Adapters(1, 1, 0).memory(shape(config)) == expected


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


def test_a_folder_that_others_can_change_is_refused() -> None:
    node = spark(1, "head", gb10_vllm_extra_args=LORA)
    assert cluster_plan([node])[1] == []
    node["observed"]["wrong_folders"] = {"/srv/mine": "/srv/mine belongs to user 990"}
    (found,) = mistakes([node])
    assert found.path == "nodes[0].gb10_vllm_extra_args.--lora-modules"
    assert found.found == "/srv/mine on spark1: /srv/mine belongs to user 990"


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("/srv/mine", ""),
        ("/opt/gb10/adapters/mine", ""),
        ("/var/lib/gb10/mine", "root reads /var/lib/gb10/mine, which overlaps with /var/lib/gb10"),
        ("/srv/theirs/mine", "root reads /srv/theirs/mine, which overlaps with /srv/theirs"),
        ("/", "root reads /, which overlaps with /boot"),
        ("/proc/1/root", "root reads /proc/1/root, which overlaps with /proc"),
        ("/etc/gb10", "root reads /etc/gb10, which overlaps with /etc"),
        ("/var", "root reads /var, which overlaps with /var/lib/gb10-netplan"),
        ("/srv/a,readonly=false,bind-propagation=shared", "'/srv/a,readonly=false,bind-propagation=shared'"),
        ("/srv/../etc", "'/srv/../etc'"),
        ("/srv/my mine", "'/srv/my mine'"),
    ],
)
def test_root_mounts_no_folder_of_the_services_or_of_its_own(folder: str, found: str) -> None:
    args = ["--enable-lora", "--lora-modules", f"mine={folder}"]
    node = spark(1, "head", gb10_vllm_extra_args=args, gb10_service_read_write_paths=["/srv/theirs"])
    problems = {problem.found for problem in cluster_plan([node])[1]}
    assert problems == ({found} if found else set())


def test_a_node_names_who_can_change_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert io_facts._wrong(str(tmp_path)) == ""
    assert io_facts._wrong(str(tmp_path / "none")) == "No such file or directory"
    assert io_facts._wrong(str(tmp_path / "link")) == f"{tmp_path}/link is not a folder"
    tmp_path.chmod(0o777)
    assert "other users can write" in io_facts._wrong(str(tmp_path))
