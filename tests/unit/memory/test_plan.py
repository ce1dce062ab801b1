"""Memory plans, compared with vLLM's logs for several kinds of models and with users' measurements; invalid inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.memory import kv_cache
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import GIB, Inputs, MemoryNode, MemoryPlan
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model import weights as model_weights
from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import KVCacheSpec

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model_configs.json").read_text(encoding="utf-8")
)
#: MemTotal of three kinds of existing nodes.
SMALL, MIDDLE, LARGE = 57 * GIB, 119 * GIB, 121 * GIB


def nodes(*memory: int) -> list[MemoryNode]:
    return [MemoryNode(f"spark{index + 1}", index == 0, size) for index, size in enumerate(memory)]


def planned(config: dict[str, Any], **arguments: Any) -> MemoryPlan:
    return memory_plan.plan(Inputs(model_shape.shape(config), **arguments))


def plan(name: str, *memory: int, **arguments: Any) -> MemoryPlan:
    return planned(CONFIGS[name], **{"nodes": nodes(*memory), "tensor": len(memory)} | arguments)


SLIDING, FULL = "sliding_attention", "full_attention"
TINY = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "vocab_size": 502,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
MAMBA = {"mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 2, "ssm_state_size": 128, "conv_kernel": 4}
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
OSS = {"num_local_experts": 4, "num_experts_per_tok": 2}
WINDOWS = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 8,
    "layer_types": [SLIDING, SLIDING, SLIDING, FULL] * 2,
    "sliding_window": 128,
}


@pytest.mark.parametrize(
    ("config", "more", "logged"),
    [
        ({"model_type": "llama"}, {}, 262144),
        ({"model_type": "llama"}, {"pipeline": 2}, 524288),
        ({"model_type": "qwen3_moe", "num_key_value_heads": 4, **MOE}, {}, 131072),
        ({"model_type": "qwen3_moe", "num_key_value_heads": 4, **MOE}, {"tensor": 2}, 262144),
        (WINDOWS, {}, 119837),
        # With --max-num-batched-tokens 128. The CPU build schedules one batch at a time, a GPU build two.
        (WINDOWS, {"max_num_batched_tokens": 64}, 246723),
        ({"model_type": "mistral", "sliding_window": 128}, {}, 233016),
        (
            {
                "model_type": "gpt_oss",
                "num_hidden_layers": 6,
                "layer_types": [SLIDING, FULL] * 3,
                "sliding_window": 128,
                **OSS,
            },
            {},
            164442,
        ),
        ({"model_type": "qwen3_next", "num_hidden_layers": 8, **MOE, **DELTA}, {}, 299593),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-M-M*", **MAMBA}, {}, 155306),
        # The CPU build uses blocks of 16 for latent attention.
        ({"model_type": "deepseek_v2", **LATENT}, {"block": 16}, 116496),
    ],
)
def test_the_plan_has_as_many_tokens_as_vllm_logs(config: dict[str, Any], more: dict[str, Any], logged: int) -> None:
    """vLLM 0.32.0's "CPU KV cache size" with 1 GiB of float32 KV, --max-model-len 1024, blocks of 128 tokens."""
    arguments = {
        "dtype": "float32",
        "max_model_len": 1024,
        "max_num_batched_tokens": 2048,
        "kv_cache_memory_bytes": GIB,
        "block": 128,
    } | more
    found = planned(TINY | config, nodes=nodes(LARGE, LARGE), **{"tensor": 1} | arguments)
    assert found.tokens == logged
    assert found.concurrency == pytest.approx(logged / 1024, rel=0.0001)


def test_blocks_of_heads_of_several_sizes_are_as_many_as_vllm_logs() -> None:
    """Gemma 4 26B on a GB10, vLLM 0.30.0 (edurdias/capyctl-recipes 9cd56dc1): 3.74 requests in 3 GiB of FP8 KV."""
    arguments = {"max_model_len": 32768, "max_num_batched_tokens": 2048, "kv_cache_memory_bytes": 3 * GIB}
    found = plan("Gemma-4-26B-A4B-NVFP4", MIDDLE, **arguments)
    assert (found.tokens, round(found.concurrency, 2), found.kv_dtype) == (122_521, 3.74, "fp8")
    # Four ranks have one of the wide heads each: full layers and sliding layers then have equal pages.
    layout = kv_cache.layout(model_shape.shape(CONFIGS["Gemma-4-26B-A4B-NVFP4"]), 4, "fp8", "bfloat16", 4096)
    assert {group.block for group in layout.groups} == {16}
    assert set(layout.pages) == {16 * 1024}


def test_the_roofline_of_a_dense_model_is_the_published_one() -> None:
    """Llama-3.3-70B in NVFP4 on one node: 6.7 tokens/s (NVIDIA, dgx-spark-playbooks issue 79; measured: 4.0 to 4.2)."""
    one, two = plan("Llama-3.3-70B-NVFP4", MIDDLE), plan("Llama-3.3-70B-NVFP4", MIDDLE, LARGE)
    assert one.tokens_per_second == pytest.approx(6.72, abs=0.01)
    # Each rank reads the norms; all other weights and the KV of a full context are divided.
    assert two.tokens_per_second == pytest.approx(2 * one.tokens_per_second, rel=0.001)
    assert one.tokens_per_second_full < one.tokens_per_second
    stages = plan("Llama-3.3-70B-NVFP4", MIDDLE, LARGE, tensor=1, pipeline=2)
    assert stages.tokens_per_second == one.tokens_per_second


def test_a_model_that_fits_fills_the_rest_of_a_node() -> None:
    found = plan("gpt-oss-120b", MIDDLE)
    assert (found.fits, found.short, found.problems, found.context) == (True, 0, (), 131072)
    (node,) = found.nodes
    assert node.memory == node.reserve + node.weights + node.workspace + node.left
    assert node.left - memory_plan.MIB < node.kv <= node.left
    kv = f"--kv-cache-memory-bytes={node.kv}"
    assert found.arguments == (kv, "--gpu-memory-utilization=1.00", "--max-num-seqs=64")


def test_a_release_without_bytes_gets_a_fraction_below_the_reserve_and_the_limit() -> None:
    found = plan("gpt-oss-120b", MIDDLE, kv_in_bytes=False, reserve=25 * GIB)
    # 94 of 119 GiB.
    assert found.arguments == ("--gpu-memory-utilization=0.78", "--max-num-seqs=64")
    limited = plan("gpt-oss-120b", MIDDLE, kv_in_bytes=False, reserve=25 * GIB, contexts=1)
    assert (
        limited.arguments[0]
        == f"--gpu-memory-utilization={-(-limited.nodes[0].planned * 100 // MIDDLE) / 100:.2f}"
        < found.arguments[0]
    )
    assert limited.tokens >= limited.context


@pytest.mark.parametrize(("reserve", "share"), [(25, 1.0), (25, 0.9), (5, 0.7), (0, 0.835)])
def test_the_larger_of_reserve_and_share_stays_unplanned(reserve: int, share: float) -> None:
    found = plan("gpt-oss-120b", MIDDLE, reserve=reserve * GIB, share=share)
    (node,) = found.nodes
    assert node.reserve == max(reserve * GIB, MIDDLE - int(share * MIDDLE))
    assert node.reserve <= node.memory - node.planned < node.reserve + memory_plan.MIB
    fraction = float(found.arguments[1].removeprefix("--gpu-memory-utilization="))
    assert node.planned <= fraction * MIDDLE <= share * MIDDLE, "vLLM checks no more than the user's share"


def test_the_cache_holds_eight_contexts_and_not_more() -> None:
    whole = plan("gpt-oss-120b", LARGE, LARGE)
    limited = plan("gpt-oss-120b", LARGE, LARGE, contexts=8, tokens_per_request=8192)
    assert limited.context == whole.context == 131072
    assert limited.concurrency == pytest.approx(8, abs=0.01)
    assert limited.nodes[0].kv < whole.nodes[0].kv / 2
    # Four requests need only four contexts.
    assert plan("gpt-oss-120b", LARGE, LARGE, contexts=8, max_num_seqs=4).concurrency == pytest.approx(4, abs=0.01)


def test_the_cache_holds_some_tokens_of_each_request() -> None:
    limits = {"contexts": 8, "tokens_per_request": 8192}
    found = plan("Llama-3.1-8B", LARGE, max_model_len=16384, **limits)
    assert (found.max_num_seqs, found.context_of_each) == (64, 8192)
    assert found.concurrency == pytest.approx(32, abs=0.01)
    # As far as it fits: 91 GiB of weights leave less.
    tight = plan("Qwen2.5-72B", LARGE, LARGE, max_model_len=32768, reserve=40 * GIB, **limits)
    assert tight.context_of_each < 8192
    assert tight.nodes[0].kv > tight.nodes[0].left - memory_plan.MIB
    # Every request of a short context fits.
    short = plan("Llama-3.1-8B", LARGE, max_model_len=4096, **limits)
    assert (short.context_of_each, round(short.concurrency)) == (4096, 64)


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    contexts=st.integers(1, 64),
    tokens=st.integers(0, 16384),
    reserve=st.integers(0, 100),
    sequences=st.integers(0, 256),
    length=st.integers(0, 4096),
    in_bytes=st.booleans(),
)
def test_a_plan_keeps_the_reserve_and_its_context(
    name: str, contexts: int, tokens: int, reserve: int, sequences: int, length: int, in_bytes: bool
) -> None:
    arguments = {"reserve": reserve * GIB, "max_num_seqs": sequences, "max_model_len": length, "kv_in_bytes": in_bytes}
    whole = plan(name, LARGE, **arguments)
    found = plan(name, LARGE, **arguments, contexts=contexts, tokens_per_request=tokens)
    assert (found.fits, found.short) == (whole.fits, whole.short)
    if found.fits:
        (node,) = found.nodes
        assert node.memory - node.planned >= reserve * GIB
        assert node.kv <= whole.nodes[0].kv or found.max_num_seqs != whole.max_num_seqs
        assert found.context <= found.largest_context
        assert found.concurrency >= 1
        assert found.problems or sequences or found.context_of_each or not found.tokens


def test_the_context_is_lowered_to_what_fits_and_that_is_said() -> None:
    found = plan("Llama-3.1-70B", LARGE, 100 * GIB, reserve=12 * GIB)
    (short,) = {node.kv // (160 * 1024) for node in found.nodes}
    assert found.largest_context <= short < found.largest_context + 2 * 16
    assert found.context == found.largest_context // 1024 * 1024 < 131072
    assert f"--max-model-len={found.context}" in found.arguments
    assert 1 <= found.concurrency < 1.1


@pytest.mark.parametrize("sequences", [16, 256])
def test_the_context_that_is_asked_for_is_planned(sequences: int) -> None:
    found = plan("Llama-3.1-8B", MIDDLE, max_model_len=8192, max_num_seqs=sequences)
    assert (found.context, "--max-model-len=8192" in found.arguments) == (8192, True)
    assert found.concurrency * 8192 == pytest.approx(found.tokens, rel=0.001)
    assert found.context_of_each == pytest.approx(min(8192, found.tokens / sequences), rel=0.02)
    assert found.context_of_each <= 8192 and (found.context_of_each == 8192) is (sequences == 16)
    assert plan("Llama-3.1-70B", *[LARGE] * 2, max_model_len=131072).context == 131072, "the whole context"


def test_a_model_that_is_too_large_says_by_how_much_and_where() -> None:
    found = plan("Qwen2.5-72B", MIDDLE)
    (node,), (problem,) = found.nodes, found.problems
    assert (found.fits, found.arguments, node.left < 0) == (False, (), True)
    assert found.short == node.short == 4096 * 327680 + 16 * 327680 - node.left
    size = f"{found.short / GIB:.1f} GiB"
    text = f"{size} larger than the cluster at 4096 tokens of context: spark1 lacks {size}"
    assert (problem.path, problem.found) == ("gb10_model", text)


def test_the_smallest_node_decides() -> None:
    unequal, equal = plan("gpt-oss-120b", LARGE, SMALL), plan("gpt-oss-120b", LARGE, LARGE)
    assert unequal.fits
    assert unequal.tokens < equal.tokens / 3
    assert unequal.nodes[0].kv == unequal.nodes[1].kv
    assert unequal.nodes[0].left > unequal.nodes[1].left
    # vLLM's default batch for a device below 70 GiB is smaller.
    assert unequal.nodes[0].workspace < equal.nodes[0].workspace
    lacking = plan("Qwen2.5-72B", LARGE, SMALL)
    assert [node.short > 0 for node in lacking.nodes] == [True, True]
    assert lacking.nodes[1].short > lacking.nodes[0].short


def test_a_pipeline_divides_layers_and_not_tokens() -> None:
    found = plan("Llama-3.1-8B", MIDDLE, MIDDLE, MIDDLE, tensor=1, pipeline=3)
    # vLLM 0.32 logs for 32 layers: "Hidden layers were unevenly partitioned: [11,11,10]".
    assert [node.kv_per_token for node in found.nodes] == [layers * 4096 for layers in (11, 11, 10)]
    shape = model_shape.shape(CONFIGS["Llama-3.1-8B"])
    assert abs(sum(node.weights for node in found.nodes) - model_weights.checkpoint(shape)) < 10
    # The stage with the most layers has room for the fewest blocks.
    assert found.tokens <= found.nodes[0].kv // (11 * 4096)


def test_states_make_the_blocks_large() -> None:
    """Qwen3-Next's state needs a page of 544 tokens of 2 KiB.

    The state: (2 x 16 x 128 + 32 x 128) channels x 3, and 32 x 128 x 128, with 2 bytes per number.
    """
    found = plan("Qwen3-Next-80B", LARGE, LARGE)
    state = (8192 * 3 + 32 * 128 * 128) * 2
    assert found.block == 544 == -(-state // (2048 * 16)) * 16


def test_states_are_as_many_blocks_as_vllm_logs() -> None:
    """Nemotron 3.5 Lightning, with Nano's layers, on a GB10 with vLLM 0.30.0 (edurdias/capyctl-recipes bb2729ac).

    It logged 342,016 tokens in 2 GiB of FP8 KV, with requests of 32,768 tokens. That release keeps two states.
    """
    layout = kv_cache.layout(model_shape.shape(CONFIGS["Nemotron-3-Nano"]), 1, "fp8", "bfloat16", 4096)
    blocks = 2 * GIB // layout.block_bytes(range(52))
    assert (blocks, layout.block, len(layout.groups)) == (167, 4176, 5)
    assert blocks * 32768 // (8 + 4 * 2) == 342_016


def test_more_sequences_than_blocks_of_states_are_lowered() -> None:
    found = plan("Nemotron-3-Nano", MIDDLE, kv_dtype="fp8", kv_cache_memory_bytes=2 * GIB)
    # 167 blocks: 12 sequences with three states of four groups, and one block of tokens.
    assert (found.max_num_seqs, found.arguments[-1]) == (12, "--max-num-seqs=12")
    assert found.context_of_each >= found.block
    assert found.nodes[0].workspace < plan("Nemotron-3-Nano", MIDDLE).nodes[0].workspace
    few = plan("Nemotron-3-Nano", MIDDLE, kv_dtype="fp8", kv_cache_memory_bytes=2 * GIB, max_num_seqs=8)
    many = plan("Nemotron-3-Nano", MIDDLE)
    plain = plan("Llama-3.1-8B", MIDDLE, kv_cache_memory_bytes=2 * GIB)
    assert [each.max_num_seqs for each in (few, many, plain)] == [8, 64, 64]
    assert ["--max-num-seqs=64" in each.arguments for each in (few, many, plain)] == [False, True, True]
    assert "seqs" not in "".join(few.arguments), "the user's value"
    assert few.fits and few.problems == ()


def test_more_sequences_than_blocks_of_states_are_a_problem_if_the_user_wants_them() -> None:
    """vLLM 0.33 refuses 168 sequences with 167 blocks (config/compilation.py)."""
    most, over = (
        plan("Nemotron-3-Nano", MIDDLE, kv_dtype="fp8", kv_cache_memory_bytes=2 * GIB, max_num_seqs=count)
        for count in (167, 168)
    )
    assert most.problems == ()
    (problem,) = over.problems
    begin = "--max-num-seqs: 168, with memory for 167 blocks of states. Expected: at most 167, "
    assert str(problem).startswith(begin) and problem.fix.startswith("lower it to 12,")
    assert plan("Llama-3.1-8B", MIDDLE, kv_cache_memory_bytes=2 * GIB, max_num_seqs=1024).problems == (), "no states"


def test_the_files_count_where_they_are_known() -> None:
    estimated, counted = plan("gpt-oss-120b", MIDDLE), plan("gpt-oss-120b", MIDDLE, weights_bytes=70_000_000_000)
    assert counted.nodes[0].weights == pytest.approx(70_000_000_000, abs=2)
    assert (counted.weights, counted.tokens < estimated.tokens) == (70_000_000_000, True)
    assert planned(TINY, nodes=nodes(LARGE), tensor=1, weights_bytes=1).tokens_per_second > 0
    unknown = CONFIGS["Llama-3.1-8B"] | {"quantization_config": {"quant_method": "bitsandbytes"}}
    known = planned(unknown, nodes=nodes(LARGE), tensor=1, weights_bytes=5 * GIB)
    assert known.nodes[0].weights == pytest.approx(5 * GIB, abs=1)


def test_a_checkpoint_in_float32_is_loaded_in_half_as_many_bytes() -> None:
    config = CONFIGS["Llama-3.1-8B"] | {"torch_dtype": "float32"}
    found = [planned(config, nodes=nodes(MIDDLE), tensor=1, dtype=dtype) for dtype in ("auto", "float32")]
    assert [node.weights for one in found for node in one.nodes] == [16060522496, 32121044992]


@pytest.mark.parametrize(
    ("stored", "dtype", "loaded"),
    [
        ("float16", "auto", "float16"),
        ("bfloat16", "auto", "bfloat16"),
        ("float32", "auto", "bfloat16"),
        ("float16", "bfloat16", "bfloat16"),
    ],
)
def test_the_cache_has_the_type_that_the_model_is_loaded_as(stored: str, dtype: str, loaded: str) -> None:
    config = CONFIGS["Llama-3.1-8B"] | {"torch_dtype": stored}
    assert planned(config, nodes=nodes(MIDDLE), tensor=1, dtype=dtype).kv_dtype == loaded


def test_bytes_that_the_user_gives_are_planned_and_missed() -> None:
    found = plan("Llama-3.1-8B", MIDDLE, kv_cache_memory_bytes=32 * GIB)
    assert (found.nodes[0].kv, found.tokens) == (32 * GIB, 32 * GIB // 131072)
    over = plan("Llama-3.1-8B", MIDDLE, kv_cache_memory_bytes=100 * GIB)
    assert not over.fits
    assert over.short == 100 * GIB - over.nodes[0].left


@pytest.mark.parametrize(
    ("name", "arguments", "problems"),
    [
        ("gpt-oss-120b", {"tensor": 3}, {"gb10_tensor_parallel_size": "3 ranks for 64 attention heads"}),
        ("Qwen3-30B-A3B", {"tensor": 8}, {}),
        ("Nemotron-3-Nano", {"tensor": 8}, {}),
        ("Qwen3-Next-80B", {"tensor": 16}, {}),
        ("Nemotron-3-Nano", {"tensor": 3}, {"gb10_tensor_parallel_size": "3 ranks for 64 heads of linear attention"}),
        ("gpt-oss-120b", {"tensor": 0, "pipeline": 2}, {"gb10_tensor_parallel_size": "0"}),
        ("Mixtral", {"tensor": 1, "pipeline": 33}, {"gb10_pipeline_parallel_size": "33 stages for 32 layers"}),
        ("Mixtral", {"tensor": 8, "pipeline": 5}, {"gb10_tensor_parallel_size": "8 x 5 ranks on 33 nodes"}),
        ("Mixtral", {"tensor": 2, "max_model_len": 32769}, {"--max-model-len": "32769"}),
        ("Mixtral", {"tensor": 2, "max_model_len": 32768}, {}),
        ("Mixtral", {"tensor": 2, "max_model_len": -1}, {"--max-model-len": "-1"}),
        ("Mixtral", {"tensor": 2, "kv_dtype": "fp7"}, {"--kv-cache-dtype": "fp7"}),
        ("Mixtral", {"tensor": 2, "kv_dtype": "fp8_ds_mla"}, {"--kv-cache-dtype": "fp8_ds_mla"}),
        ("DeepSeek-V3", {"tensor": 32, "kv_dtype": "fp8_ds_mla"}, {}),
        ("Mixtral", {"tensor": 2, "dtype": "bf16"}, {"--dtype": "bf16"}),
        (
            "Mixtral",
            {"tensor": 3, "pipeline": 40, "max_model_len": 40000, "nodes": nodes(0, LARGE, *[LARGE] * 120)},
            {
                "gb10_tensor_parallel_size": "3 ranks for 32 attention heads",
                "gb10_pipeline_parallel_size": "40 stages for 32 layers",
                "nodes[0].memory_bytes": "the memory of spark1 is unknown",
                "--max-model-len": "40000",
            },
        ),
    ],
)
def test_what_cannot_be_planned_is_said_all_at_once(
    name: str, arguments: dict[str, Any], problems: dict[str, str]
) -> None:
    arguments = {"nodes": nodes(*[LARGE] * 33)} | arguments
    if not problems:
        assert plan(name, **arguments).nodes
        return
    with pytest.raises(ProblemsError) as caught:
        plan(name, **arguments)
    assert {problem.path: problem.found for problem in caught.value.problems} == problems


LLAMA = CONFIGS["Llama-3.1-8B"]


@pytest.mark.parametrize(
    ("config", "arguments", "match"),
    [
        (
            LLAMA | {"num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 128},
            {"tensor": 4},
            r"4 ranks for 6 key/value heads.*\(1, 2, 3, 6, 12\)",
        ),
        (CONFIGS["Llama-3.1-70B"], {"tensor": 3}, r"3 ranks for 64 attention heads.*\(1, 2, 4, 8, 16\)"),
        (LLAMA, {"tensor": 0, "pipeline": 0}, r"tensor_parallel_size: 0\. .*pipeline_parallel_size: 0\. "),
        (LLAMA, {"tensor": 1, "pipeline": 0}, r"1 problem found(?!.*gb10_tensor).*gb10_pipeline_parallel_size: 0\. "),
        (LLAMA, {"tensor": 1, "max_model_len": -1}, "1 to 131072, .* or 0 for the largest that fits"),
        (LLAMA | {"quantization_config": {"quant_method": "bitsandbytes"}}, {"tensor": 1}, "unknown size"),
        (CONFIGS["Nemotron-3-Nano"] | {"hybrid_override_pattern": "MEMEME"}, {"tensor": 1}, "no layer keeps keys and"),
    ],
)
def test_what_cannot_be_planned_is_explained(config: dict[str, Any], arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ProblemsError, match=f"(?s){match}"):
        planned(config, **{"nodes": nodes(*[LARGE] * 4)} | arguments)


HEAD = "node    memory  reserve  weights  workspace  KV cache  planned  KiB/token"
ESTIMATED = "weights: 60.7 GiB estimated from the model's dimensions; KV cache in bfloat16, blocks of 16 tokens"
LEFT = plan("gpt-oss-120b", MIDDLE).nodes[0].left
#: A plan, whether the model generates, whether it can exceed the bound, and all lines.
TEXTS: dict[str, tuple[MemoryPlan, bool, bool, list[str]]] = {
    "two nodes": (
        plan("gpt-oss-120b", MIDDLE, LARGE, reserve=20 * GIB),
        True,
        False,
        [
            HEAD,
            "spark1   119.0     20.0     30.4        5.4      63.2     99.0       36.0",
            "spark2   121.0     20.0     30.4        5.4      63.2     99.0       36.0",
            ESTIMATED,
            "fits: 3269155 tokens of KV; context 131072 (largest 131072); sequences at once: 24.9, or 64 of 40992 tokens",
            "decode: at most 108.6 tokens/s for one sequence, 55.4 at 131072 tokens",
            "--kv-cache-memory-bytes=67855450112 --gpu-memory-utilization=0.84 --max-num-seqs=64",
        ],
    ),
    "files and speculative decoding": (
        plan("gpt-oss-120b", MIDDLE, reserve=20 * GIB, weights_bytes=70_000_000_000),
        True,
        True,
        [
            HEAD,
            "spark1   119.0     20.0     65.2        5.2      28.6     99.0       72.0",
            "weights: 65.2 GiB in the checkpoint; KV cache in bfloat16, blocks of 16 tokens",
            "fits: 739970 tokens of KV; context 131072 (largest 131072); sequences at once: 5.6, or 64 of 6496 tokens",
            "decode: at most 54.6 tokens/s for one sequence, 27.8 at 131072 tokens, without speculative decoding",
            "--kv-cache-memory-bytes=30718033920 --gpu-memory-utilization=0.84 --max-num-seqs=64",
        ],
    ),
    "a model that generates nothing": (
        plan("gpt-oss-120b", MIDDLE, contexts=8, tokens_per_request=8192),
        False,
        False,
        [
            HEAD,
            "spark1   119.0      0.0     60.7        5.2      40.5    106.5       72.0",
            ESTIMATED,
            "fits: 1048604 tokens of KV; context 131072 (largest 131072); sequences at once: 8.0, or 64 of 9216 tokens",
            "12.5 GiB more KV cache would fit",
            "--kv-cache-memory-bytes=43530584064 --gpu-memory-utilization=0.90 --max-num-seqs=64",
        ],
    ),
    "a model that does not fit": (
        plan("Qwen2.5-72B", MIDDLE),
        True,
        False,
        [
            HEAD,
            "spark1   119.0      0.0    135.4        6.5       0.0    141.9      320.0  short by 24.1",
            "weights: 135.4 GiB estimated from the model's dimensions; KV cache in bfloat16, blocks of 16 tokens",
            "does not fit: short by 24.1 GiB in total, for 4096 tokens of context",
        ],
    ),
    "more sequences than blocks": (
        plan("Nemotron-3-Nano", MIDDLE, kv_dtype="fp8", kv_cache_memory_bytes=2 * GIB, max_num_seqs=167),
        True,
        False,
        [
            HEAD,
            "spark1   119.0      0.0     58.8        5.3       2.0     66.1        3.0",
            "weights: 58.8 GiB estimated from the model's dimensions; KV cache in fp8, blocks of 4176 tokens",
            "fits: 583707 tokens of KV; context 262144 (largest 262144); sequences at once: 2.2, but never 167",
            "52.9 GiB more KV cache would fit",
            "decode: at most 42.3 tokens/s for one sequence, 37.4 at 262144 tokens",
            "--kv-cache-memory-bytes=2147483648 --gpu-memory-utilization=0.56",
        ],
    ),
}


@pytest.mark.parametrize(("found", "generates", "speculative", "lines"), TEXTS.values(), ids=TEXTS)
def test_a_plan_as_text(found: MemoryPlan, generates: bool, speculative: bool, lines: list[str]) -> None:
    assert memory_plan.explain(found, generates, speculative) == lines


@pytest.mark.parametrize(("more", "worth"), [(GIB, True), (GIB - memory_plan.MIB, False)])
def test_less_than_a_gib_is_not_worth_a_line(more: int, worth: bool) -> None:
    lines = memory_plan.explain(plan("gpt-oss-120b", MIDDLE, kv_cache_memory_bytes=LEFT - more))
    assert ("1.0 GiB more KV cache would fit" in lines) is worth


@given(layers=st.integers(1, 200), pipeline=st.integers(1, 16))
def test_each_layer_is_in_one_stage(layers: int, pipeline: int) -> None:
    stages = kv_cache.stages(max(layers, pipeline), pipeline)
    assert [index for stage in stages for index in stage] == list(range(max(layers, pipeline)))
    sizes = [len(stage) for stage in stages]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("layers", "pipeline", "expected"),
    [(61, 4, [15, 15, 16, 15]), (32, 5, [6, 6, 7, 7, 6]), (7, 4, [2, 2, 2, 1]), (9, 3, [3, 3, 3])],
)
def test_the_last_stage_has_none_of_the_remaining_layers(layers: int, pipeline: int, expected: list[int]) -> None:
    """As in vLLM's get_pp_indices: the last stage has the head, and the stages before it take a layer each, from the
    end."""
    assert [len(stage) for stage in kv_cache.stages(layers, pipeline)] == expected


@given(name=st.sampled_from(sorted(CONFIGS)), blocks=st.integers(2, 10**6), sequences=st.integers(1, 64))
def test_the_longest_context_fits_and_one_token_more_does_not(name: str, blocks: int, sequences: int) -> None:
    shape = model_shape.shape(CONFIGS[name])
    layout = kv_cache.layout(shape, 1, "auto", "bfloat16", 4096)
    longest = layout.longest(blocks, shape.positions, sequences)
    if longest:
        assert layout.blocks(longest) * sequences < blocks
    if longest < shape.positions:
        assert layout.blocks(longest + 1) * sequences >= blocks


@pytest.mark.parametrize(
    ("name", "memory", "more", "batch", "rows", "vocabulary"),
    [
        # Eight rows of the hidden size, three of the intermediate one, and a row for each of four experts.
        ("Llama-3.1-8B", [LARGE], {}, 8192, 8 * 4096 + 3 * 14336, 128256),
        ("Llama-3.1-8B", [LARGE, LARGE], {}, 8192, 8 * 4096 + 3 * 14336 // 2, 128256),
        ("gpt-oss-120b", [LARGE], {}, 8192, 8 * 2880 + 3 * 4 * 2880 + 4 * 2880, 201088),
        ("Llama-3.1-8B", [160 * GIB], {}, 16384, 8 * 4096 + 3 * 14336, 128256),
        ("Llama-3.1-8B", [160 * GIB - 1], {}, 8192, 8 * 4096 + 3 * 14336, 128256),
        ("Llama-3.1-8B", [70 * GIB], {}, 8192, 8 * 4096 + 3 * 14336, 128256),
        ("Llama-3.1-8B", [70 * GIB - 1], {}, 2048, 8 * 4096 + 3 * 14336, 128256),
        ("Llama-3.1-8B", [LARGE], {"max_num_batched_tokens": 100, "draft_bytes": 7}, 100, 8 * 4096 + 3 * 14336, 128256),
    ],
)
def test_the_workspace_is_that_of_the_largest_batch(
    name: str, memory: list[int], more: dict[str, int], batch: int, rows: int, vocabulary: int
) -> None:
    """4 GiB for the process, its CUDA context and its graphs, 0.5 GiB for NCCL; numbers of 2 bytes, and scores of 4
    bytes three times."""
    found = {node.workspace for node in plan(name, *memory, **more).nodes}
    fixed = 4 * GIB + more.get("draft_bytes", 0) + (GIB // 2 if len(memory) > 1 else 0)
    assert found == {fixed + batch * rows * 2 + 64 * vocabulary * 4 * 3}


def test_the_limit_of_the_cache_is_exact() -> None:
    """A context of 16,384 tokens in 1,024 blocks of 2 MiB, and the block that vLLM never uses."""
    one, two = (plan("Llama-3.1-8B", LARGE, max_model_len=16384, contexts=contexts) for contexts in (1, 2))
    assert [found.nodes[0].kv for found in (one, two)] == [
        (1024 * contexts + 1) * 2 * memory_plan.MIB for contexts in (1, 2)
    ]
    assert [found.tokens // 16384 for found in (one, two)] == [1, 2]
    tiny = planned(TINY, nodes=nodes(LARGE), tensor=1, max_model_len=16, contexts=1)
    assert tiny.nodes[0].kv == 3 * memory_plan.MIB, "65 blocks of 32 KiB, up to the next MiB"


def test_a_lowered_context_is_a_multiple_of_1024() -> None:
    found = [plan("Llama-3.1-70B", LARGE, memory * GIB, reserve=12 * GIB).context for memory in range(98, 102)]
    assert all(context % 1024 == 0 for context in found) and any(context % 2048 for context in found)
    all_of_it = planned({**TINY, "max_position_embeddings": 2500}, nodes=nodes(LARGE), tensor=1)
    assert all_of_it.context == 2500


@pytest.mark.parametrize(
    ("name", "ranks", "kv_dtype", "tokens"),
    [
        ("Llama-3.1-8B", 1, "auto", 131072),
        ("Llama-3.1-8B", 1, "fp8", 131072 // 2),
        ("Llama-3.1-8B", 1, "fp8_e5m2", 131072 // 2),
        ("Llama-3.1-8B", 1, "nvfp4", 131072 // 2 * 9 // 16),
        ("Llama-3.1-8B", 1, "float32", 131072 * 2),
        ("DeepSeek-V2-Lite", 1, "auto", 27 * 576 * 2),
        ("DeepSeek-V2-Lite", 1, "fp8", 27 * 576),
        ("DeepSeek-V2-Lite", 1, "fp8_ds_mla", 27 * 656),
        ("Llama-3.1-8B", 2, "auto", 131072 // 2),
        # vLLM repeats two KV heads on four ranks.
        ("Qwen3-Next-80B", 4, "auto", 24576 // 2),
        # Each rank holds the whole latent.
        ("DeepSeek-V3", 8, "auto", 70272),
        ("gpt-oss-120b", 1, "auto", 73728),
    ],
)
def test_the_bytes_of_a_token(name: str, ranks: int, kv_dtype: str, tokens: int) -> None:
    found = plan(name, *[LARGE] * ranks, kv_dtype=kv_dtype, max_model_len=1024)
    assert found.nodes[0].kv_per_token == tokens


def test_the_blocks_of_a_hybrid_model() -> None:
    layout = kv_cache.layout(model_shape.shape(CONFIGS["Nemotron-3-Nano"]), 1, "fp8", "bfloat16", 4096)
    assert set(layout.pages) == {0, max(layout.pages)}, "layers without attention and state have no page"
    assert layout.pages.count(0) == 52 - sum(len(group.layers) for group in layout.groups)
    plain = kv_cache.layout(model_shape.shape(CONFIGS["Llama-3.1-8B"]), 1, "auto", "bfloat16", 4096)
    assert ([layout.blocks(context) for context in (1, 4176, 4177)], plain.block_bytes(range(3))) == (
        [13, 13, 14],
        3 * 4096 * 16,
    )
    assert [plain.blocks(context) for context in (0, 1, 16, 17)] == [0, 1, 1, 2]
    assert (plain.tokens(10, 16), plain.tokens(10, 17)) == (160, 85)
    assert (plain.longest(11, 10**6), plain.longest(11, 100), plain.longest(1, 100)) == (160, 100, 0)
    assert (plain.longest(11, 10**6, 3), plain.longest(12, 10**6, 3)) == (48, 48)


def test_blocks_of_latents_and_states_are_multiples_of_128() -> None:
    """Source: vLLM's platforms/interface.py; Kimi Linear has both."""
    config = {**TINY, **LATENT, **DELTA, "layer_types": ["linear_attention", FULL] * 2, "num_hidden_layers": 4}
    layout = kv_cache.layout(model_shape.shape(config), 1, "auto", "bfloat16", 4096)
    assert layout.block and layout.block % 128 == 0


def test_a_model_without_cache_has_no_blocks() -> None:
    layout = kv_cache.Layout((), (), 16, 4096, (), ())
    assert (layout.block_bytes(range(4)), layout.tokens(8, 16), layout.longest(8, 100)) == (0, 0, 100)


@pytest.mark.parametrize(
    ("groups", "tensor", "expected"),
    [
        (1, 1, (16 + 8) * 2),
        (1, 4, (16 + 4 * 8) // 4 * 2),
        (3, 2, (16 + 3 * 8) // 2 * 2),
        (8, 2, (16 + 8 * 8) // 2 * 2),
        (0, 2, 16 // 2 * 2),
    ],
)
def test_each_rank_has_a_group_of_a_state(groups: int, tensor: int, expected: int) -> None:
    """vLLM repeats groups that do not divide evenly."""
    spec = KVCacheSpec(kind="state", convolution=16, groups=groups, group=8)
    assert kv_cache._state_bytes(spec, tensor, "bfloat16") == expected


def test_an_encoder_without_cache_lacks_what_its_weights_need() -> None:
    config = {
        **TINY,
        "model_type": "xlm-roberta",
        "architectures": ["XLMRobertaModel"],
        "type_vocab_size": 1,
        "max_position_embeddings": 514,
    }
    large, small = (planned(config, nodes=nodes(size), tensor=1, reserve=5 * GIB) for size in (LARGE, 5 * GIB))
    assert (large.fits, large.short, small.fits, small.short > 0) == (True, 0, False, True)
    assert large.nodes[0].kv == 0


def test_what_vllm_takes_must_be_available() -> None:
    found = plan("Llama-3.1-8B", MIDDLE, LARGE)
    assert memory_plan.needs(found) == {node.name: node.weights + node.workspace + node.kv for node in found.nodes}


@pytest.mark.parametrize(
    ("arguments", "expected", "fix"),
    [
        ({"reserve": 3 * GIB}, "without the reserve of 3 GiB", "or lower gb10_memory_reserve"),
        (
            {"share": 0.9},
            "without the reserve of 0 GiB, and within the share 0.9",
            "or lower gb10_memory_reserve or raise --gpu-memory-utilization",
        ),
    ],
)
def test_a_model_that_is_too_large_has_its_limits(arguments: dict[str, Any], expected: str, fix: str) -> None:
    (problem,) = plan("Qwen2.5-72B", MIDDLE, **arguments).problems
    assert problem.expected.endswith(expected) and problem.fix.endswith(fix)
    several = plan("Qwen2.5-72B", LARGE, SMALL, SMALL, tensor=1, pipeline=3).problems
    assert ["spark1" in each.found for each in several] == [False] * len(several), "only the nodes that lack memory"
