"""Tests of the named backends on a GB10, and of the kernels that FlashInfer compiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_nodes import LOCK, cluster_plan, spark
from plans import inputs

from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import read_config
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan

MLA = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 4,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "intermediate_size": 18432,
}
SPARSE = {**MLA, "model_type": "deepseek_v32", "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
DRAFT = ["--speculative-config.method=mtp", "--speculative-config.num_speculative_tokens=1"]


def decided(given: serve_plan.Inputs, config: dict[str, Any] | None = None) -> serve_plan.Decision:
    """Return the decision, with the config.json of another model."""
    if config:
        given = replace(given, model=replace(given.model, config=read_config(config), weights_bytes=None))
    return serve_plan.decide(given)


def backends(decision: serve_plan.Decision) -> list[str]:
    return [word for word in decision.args if "backend" in word or "autotune" in word]


@pytest.mark.parametrize("stack", ["current", "vllm-0.32.0", "vllm-0.18.1"])
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
        # Layers that the memory plan does not support.
        {"model_type": "llama4", "text_config": {"num_local_experts": 16, "interleave_moe_layer_step": 1}},
    ],
)
def test_experts_in_nvfp4_outside_of_the_catalog_are_named(stack: str, config: dict[str, Any]) -> None:
    dimensions = catalog.find("qwen2.5-7b-instruct").config
    quantized = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    decision = decided(inputs("phi-4", stack, 1), {**dimensions, **config, **quantized})
    assert "--moe-backend=marlin" in decision.args
    # The second model's dimensions are incomplete.
    assert {each.check.id for each in decision.findings if each.check.severity != "info"} <= {"model-size-unknown"}


def test_gpt_oss_is_named_whole() -> None:
    assert backends(decided(inputs("gpt-oss-120b"))) == [
        "--attention-backend=TRITON_ATTN",
        "--moe-backend=marlin",
        "--no-enable-flashinfer-autotune",
    ]


def test_flashinfer_is_one_variable() -> None:
    decision = decided(inputs("gpt-oss-120b", gb10_flashinfer=True))
    assert backends(decision)[0] == "--attention-backend=FLASHINFER"
    assert "--no-enable-flashinfer-autotune" in decision.args
    assert decision.environment["VLLM_USE_FLASHINFER_SAMPLER"] == "1"
    assert "VLLM_DISABLED_KERNELS" not in decision.environment
    assert decision.compiled == ["the sampler", "attention", "linear layers"]


@pytest.mark.parametrize(
    ("config", "settings", "stack", "attention"),
    [
        (MLA, {}, "current", "TRITON_MLA"),
        (MLA, {"gb10_flashinfer": True}, "current", "TRITON_MLA"),
        # Only FlashInfer has sparse attention on 12.x.
        (SPARSE, {}, "current", ""),
        # A draft may have another attention than its model.
        (MLA, {"gb10_vllm_extra_args": DRAFT}, "current", ""),
        (MLA, {"gb10_vllm_extra_args": ["--spec-method=mtp", "--spec-tokens=1"]}, "current", ""),
        (None, {"gb10_vllm_extra_args": DRAFT}, "current", "TRITON_ATTN"),
        (None, {"gb10_vllm_extra_args": DRAFT}, "vllm-0.18.1", ""),
        (MLA, {"gb10_kv_cache_dtype": "fp8"}, "current", "TRITON_MLA"),
        (MLA, {"gb10_kv_cache_dtype": "fp8"}, "vllm-0.18.1", ""),
        (None, {"gb10_kv_cache_dtype": "nvfp4"}, "current", ""),
    ],
)
def test_a_backend_that_a_layer_may_refuse_is_not_named(
    config: dict[str, Any] | None, settings: dict[str, Any], stack: str, attention: str
) -> None:
    decision = decided(inputs("qwen2.5-7b-instruct", stack, **settings), config)
    named = [word.partition("=")[2] for word in decision.args if word.startswith("--attention-backend")]
    assert named == ([attention] if attention else [])
    assert ("attention" in decision.compiled) == (not attention)


def test_linear_kernels_are_flashinfers_only_on_request() -> None:
    plain, fp8 = decided(inputs("qwen2.5-7b-instruct")), decided(inputs("qwen3.5-122b-a10b-fp8"))
    assert "VLLM_DISABLED_KERNELS" not in plain.environment
    assert "FlashInferCutlassNvFp4LinearKernel" in fp8.environment["VLLM_DISABLED_KERNELS"].split(",")
    own = decided(inputs("qwen3.5-122b-a10b-fp8", gb10_extra_env={"VLLM_DISABLED_KERNELS": ""}))
    # The variables of the nodes contain the user's.
    nodes = [replace(node, environment={"VLLM_DISABLED_KERNELS": ""}) for node in inputs("qwen3.5-122b-a10b-fp8").nodes]
    assert own.compiled == []
    assert decided(replace(inputs("qwen3.5-122b-a10b-fp8"), nodes=nodes)).compiled == ["linear layers"]


@pytest.mark.parametrize(
    ("own", "compiled"),
    [
        (["--attention-backend", "FLASHINFER"], ["attention"]),
        (["--moe-backend=flashinfer_cutlass"], ["experts"]),
        (["--enable-flashinfer-autotune"], ["tuned kernels"]),
        (["--kernel-config", '{"enable_flashinfer_autotune": true}'], ["tuned kernels"]),
        (["--kernel-config", '{"enable_flashinfer_autotune": false}'], []),
    ],
)
def test_the_users_choice_of_flashinfer_is_compiled(own: list[str], compiled: list[str]) -> None:
    assert decided(inputs("gpt-oss-120b", gb10_vllm_extra_args=own)).compiled == compiled


def test_a_recipe_leaves_its_choices_to_vllm() -> None:
    given = inputs("gpt-oss-120b")
    decision = decided(replace(given, model=replace(given.model, recipe=True)))
    assert backends(decision) == []
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in decision.environment
    assert decision.compiled == ["the sampler", "attention", "linear layers", "experts", "tuned kernels"]


def test_a_thor_and_a_cpu_are_not_named() -> None:
    thors = inputs("gpt-oss-20b", count=2, thors=2)
    assert backends(decided(thors)) == []
    assert backends(decided(inputs("gpt-oss-20b", "lab"))) == []
    assert decided(inputs("gpt-oss-20b", "lab")).compiled == []


TOOLKIT = {
    "home": "/usr/local/cuda",
    "release": "13.0.88",
    "architectures": ["sm_121"],
    "reason": "",
    "host_compiler": True,
}


@pytest.mark.parametrize(
    ("toolkit", "packages", "found"),
    [
        (TOOLKIT, None, []),
        ({**TOOLKIT, "home": ""}, None, ["nodes[0].toolkit", "nodes[1].toolkit"]),
        ({**TOOLKIT, "architectures": ["sm_90"]}, None, ["nodes[0].toolkit", "nodes[1].toolkit"]),
        ({**TOOLKIT, "host_compiler": False}, None, []),
        ({**TOOLKIT, "host_compiler": False}, ["g++", "python3.12-dev"], []),
        (
            {**TOOLKIT, "host_compiler": False},
            ["libnuma1"],
            ["nodes[0].vllm_runtime_packages", "nodes[1].vllm_runtime_packages"],
        ),
        # Facts of an earlier release do not contain the toolkit.
        (None, None, []),
    ],
)
def test_a_missing_compiler_is_a_problem_only_if_it_is_needed(
    toolkit: dict[str, Any] | None, packages: list[str] | None, found: list[str]
) -> None:
    for flashinfer in (False, True):
        settings = {"gb10_model": "gpt-oss-120b", "gb10_flashinfer": flashinfer}
        nodes = [spark(1, "head", **settings), spark(2, "worker", **settings)]
        for node in nodes:
            node["settings"] |= {"vllm_runtime_packages": packages} if packages else {}
            node["observed"] |= {"toolkit": toolkit, "model": None, "model_bytes": None}
        plan, problems = cluster_plan(nodes, LOCK)
        assert [problem.path for problem in problems] == (found if flashinfer else [])
        if plan and toolkit and toolkit["home"]:
            for node in plan["nodes"]:
                runtime = plan["runtime"]["path"]
                assert node["environment"]["PATH"].startswith(f"{runtime}/bin:/usr/local/cuda/bin:/usr/local/sbin:")
                assert (node["environment"]["CUDA_HOME"], node["environment"]["MAX_JOBS"]) == ("/usr/local/cuda", "2")
