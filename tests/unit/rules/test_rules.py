"""Tests of the lint rules: each fires for its case and not for a similar one; the plan's own settings pass."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import WARNING, Finding
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import environment as fabric_environment
from ansible_collections.gb10.cluster.plugins.module_utils.rules import context as rules_context
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint
from ansible_collections.gb10.cluster.plugins.module_utils.rules.lint import RULES
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import RuleNode, ServedModel, Situation, View
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

PLAN = json.loads((ROOT / "tests" / "unit" / "data" / "plan_two_spark.json").read_text(encoding="utf-8"))
GIB = 2**30

#: A pair of Sparks as the plan launches it, with the choices that the newest evidence supports.
CLEAN: dict[str, Any] = {
    "release": "0.32.0",
    "image": "",
    "runtime": "native",
    "network": "host",
    "executor": "ray",
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 1,
    "topology": "direct",
    "transport": "roce",
    "api_host": "127.0.0.1",
    "api_key": False,
    "nccl": "2.30.7",
    "smoke_tokens": 512,
    "model": {
        "name": "openai/gpt-oss-120b",
        "type": "gpt_oss",
        "scheme": "mxfp4",
        "moe": True,
        "reasoning": True,
        "weights_bytes": 65 * 10**9,
    },
    "arguments": {
        "--load-format": "instanttensor",
        "--tensor-parallel-size": "2",
        "--max-model-len": "131072",
        "--gpu-memory-utilization": "0.8",
        "--kv-cache-memory-bytes": "24G",
        "--enable-flashinfer-autotune": False,
    },
    "nodes": [
        {
            "name": node["name"],
            "head": node["head"],
            "capability": "12.1",
            "driver": "580.142",
            "kernel": "6.17.0-1032-nvidia",
            "memory_bytes": 121 * GIB,
            "environment": node["environment"],
            "fabric": {"NCCL_IB_DISABLE": "0"},
            "cma_free_bytes": 0,
            "cma_total_bytes": 0,
        }
        for node in PLAN["nodes"]
    ],
}
THOR = {"capability": "11.0", "driver": "580.00", "kernel": "6.8.12-tegra"}
DENSE_FP8 = {"name": "a", "type": "llama", "scheme": "fp8", "moe": False, "reasoning": False}
NVFP4 = {"name": "a", "type": "qwen3_moe", "scheme": "nvfp4", "reasoning": False}
NGC = "nvcr.io/nvidia/vllm:26.04-py3"
DRAFT = {"--speculative-config.method": "mtp"}
OLD, BREAKABLE = {"release": "0.19.0"}, {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
NO_ATOMIC_ADD: dict[str, str | None] = {"VLLM_MARLIN_USE_ATOMIC_ADD": "0"}
SOCKETS = {"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": None}
RING = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0"}


def situation(
    arguments: dict[str, Any] | None = None,
    environment: dict[str, str | None] | None = None,
    node: dict[str, Any] | None = None,
    second: dict[str, Any] | None = None,
    own: dict[str, str | None] | None = None,
    model: dict[str, Any] | None = None,
    count: int = 2,
    **others: Any,
) -> Situation:
    """Return the clean situation with changes.

    ``environment`` and ``node`` change all nodes, ``own`` and ``second`` the second one, ``others`` the rest. None
    removes an argument or variable.
    """
    changed: dict[str, Any] = copy.deepcopy(CLEAN) | others
    changed["model"] |= model or {}
    changed["arguments"] = given(changed["arguments"] | (arguments or {}))
    while len(changed["nodes"]) < count:
        changed["nodes"].append(copy.deepcopy(changed["nodes"][0]))
        changed["nodes"][-1]["environment"]["VLLM_HOST_IP"] = f"10.110.0.{len(changed['nodes'])}"
    del changed["nodes"][count:]
    for index, each in enumerate(changed["nodes"]):
        each.update((node or {}) | ((second or {}) if index == 1 else {}))
        each["environment"] = given(each["environment"] | (environment or {}) | ((own or {}) if index == 1 else {}))
    parts = {"model": ServedModel(**changed["model"]), "nodes": [RuleNode(**each) for each in changed["nodes"]]}
    return Situation(**{**changed, **parts})


def given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def container(image: str, **others: Any) -> dict[str, Any]:
    return {"runtime": "container", "image": image, **others}


#: By rule: changes that fire it, and similar changes that do not.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "memory-utilization-ceiling": (
        {"arguments": {"--gpu-memory-utilization": "0.91"}},
        {"arguments": {"--gpu-memory-utilization": "0.90"}},
    ),
    "memory-utilization-high": (
        {"arguments": {"--gpu-memory-utilization": "0.88"}},
        {"arguments": {"--gpu-memory-utilization": "0.87"}},
    ),
    "memory-utilization-default": (
        {"arguments": {"--gpu-memory-utilization": None}},
        {"arguments": {"--gpu-memory-utilization": "0.5"}},
    ),
    "model-size-unknown": ({"unplanned": "no config.json was read"}, {"unplanned": ""}),
    "memory-utilization-replaced": (
        {"replaced_share": 0.9, "reserve_bytes": 16 * GIB},
        {"replaced_share": 0.8, "reserve_bytes": 16 * GIB},
    ),
    "loader-package": (
        {"packages": ("vllm", "torch"), "arguments": {"--load-format": "runai_streamer"}},
        {"packages": ("vllm", "runai-model-streamer"), "arguments": {"--load-format": "runai_streamer"}},
    ),
    "fastsafetensors-ngc": (
        container(NGC, arguments={"--load-format": "fastsafetensors"}),
        container("nvcr.io/nvidia/vllm:26.05-py3", arguments={"--load-format": "fastsafetensors"}),
    ),
    "fastsafetensors-large": (
        {"arguments": {"--load-format": "fastsafetensors"}, "model": {"weights_bytes": 220 * GIB}},
        {"arguments": {"--load-format": "fastsafetensors"}, "model": {"weights_bytes": 180 * GIB}},
    ),
    "mapped-weights": (
        {"arguments": {"--load-format": "auto"}},
        {"arguments": {"--load-format": "instanttensor"}},
    ),
    "prefill-decode-apart": (
        {"arguments": {"--kv-transfer-config": '{"kv_role": "kv_producer"}'}},
        {"arguments": {"--kv-transfer-config": '{"kv_role": "kv_both"}'}},
    ),
    "unequal-memory": ({"second": {"memory_bytes": 60 * GIB}}, {"second": {"memory_bytes": 119 * GIB}}),
    "sleep-mode": ({"arguments": {"--enable-sleep-mode": True}}, {"arguments": {"--enable-sleep-mode": False}}),
    "autotune-cache": (
        {"release": "0.28.0", "arguments": {"--enable-flashinfer-autotune": None}},
        {"release": "0.32.0", "arguments": {"--enable-flashinfer-autotune": None}},
    ),
    "flashinfer-autotune": (
        {"arguments": {"--enable-flashinfer-autotune": True}},
        {"arguments": {"--enable-flashinfer-autotune": None}},
    ),
    "expandable-segments-connector": (
        {
            "environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            "arguments": {"--kv-offloading-size": "8"},
        },
        {"environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
    ),
    "swap-space": ({"release": "0.17.1"}, {"release": "0.17.1", "arguments": {"--swap-space": "0"}}),
    "page-cache-counted": ({"release": "0.19.0"}, {"release": "0.20.0"}),
    "load-pressure": ({"release": "0.23.0"}, {"release": "0.24.0"}),
    "enforce-eager": (
        {"arguments": {"--enforce-eager": True}},
        {"arguments": {"--enforce-eager": True}, "second": THOR},
    ),
    "nccl-arm-hang": ({"nccl": "2.29.2"}, {"nccl": "2.29.3"}),
    "breakable-cudagraph": (
        {"release": "0.24.0", "environment": BREAKABLE},
        {"release": "0.25.0", "environment": BREAKABLE},
    ),
    "cudagraph-mode": (
        {"arguments": {"--compilation-config": '{"cudagraph_mode": "PIECEWISE"}'}},
        {"arguments": {"--compilation-config.cudagraph_mode": "FULL_DECODE_ONLY"}},
    ),
    "flashinfer-fp8": (
        {**OLD, "arguments": {"--attention-backend": "FLASHINFER"}, "model": {"scheme": "fp8"}},
        {**OLD, "arguments": {"--attention-backend": "FLASHINFER"}},
    ),
    "fp4-moe-path": (
        {**OLD, "model": NVFP4},
        {**OLD, "model": NVFP4, "arguments": {"--moe-backend": "marlin"}},
    ),
    "moe-backend-datacentre": (
        {"arguments": {"--moe-backend": "flashinfer_trtllm"}},
        {"arguments": {"--moe-backend": "flashinfer_b12x"}},
    ),
    "moe-backend-triton-nvfp4": (
        {"model": NVFP4, "arguments": {"--kernel-config": '{"moe_backend": "triton"}'}},
        {"model": {**NVFP4, "scheme": "fp8"}, "arguments": {"--kernel-config": '{"moe_backend": "triton"}'}},
    ),
    "linear-backend-strict": (
        {"release": "0.27.1", "arguments": {"--linear-backend": "triton"}},
        {"release": "0.28.0", "arguments": {"--linear-backend": "triton"}},
    ),
    "marlin-atomic-add": (
        {**OLD, "arguments": {"--moe-backend": "marlin"}, "environment": NO_ATOMIC_ADD},
        {**OLD, "arguments": {"--moe-backend": "marlin"}},
    ),
    "mxfp4-checkpoint": (
        {"arguments": {"--quantization": "mxfp4"}, "model": {"type": "qwen3_moe", "scheme": "none"}},
        {"arguments": {"--quantization": "mxfp4"}},
    ),
    "fp8-cutlass": (
        {"release": "0.20.2+cu129", "model": DENSE_FP8},
        {"release": "0.20.2+cu130", "model": DENSE_FP8},
    ),
    "max-tokens-reasoning": ({"smoke_tokens": 511}, {"smoke_tokens": 8, "model": {"reasoning": False}}),
    "reasoning-parser": (
        {"model": {"type": "qwen3", "scheme": "none", "moe": False}},
        {"model": {"type": "qwen3", "scheme": "none", "moe": False}, "arguments": {"--reasoning-parser": "qwen3"}},
    ),
    "bridge-network": (
        container("a@sha256:1", network="bridge"),
        container("a@sha256:1", network="bridge", count=1, tensor_parallel_size=1),
    ),
    "nccl-ib-hca-unset": (
        {"environment": {"NCCL_IB_HCA": None}},
        {"environment": {"NCCL_IB_HCA": None}, "transport": "socket"},
    ),
    "nccl-ib-hca-half": (
        {"environment": {"NCCL_IB_HCA": "=rocep1s0f1:1"}},
        {"environment": {"NCCL_IB_HCA": "=rocep1s0f1:1,roceP2p1s0f1:1"}},
    ),
    "nccl-gid-index": ({"environment": {"NCCL_IB_GID_INDEX": ""}}, {"environment": {"NCCL_IB_TC": "3"}}),
    "roce-disabled": ({"environment": SOCKETS}, {"environment": SOCKETS, "node": {"fabric": {"NCCL_IB_DISABLE": "1"}}}),
    "tp-over-sockets": (
        {"environment": SOCKETS, "transport": "socket"},
        {"environment": SOCKETS, "transport": "socket", "tensor_parallel_size": 1, "pipeline_parallel_size": 2},
    ),
    "tp-thor": (
        {"environment": SOCKETS, "transport": "socket", "second": THOR},
        {
            "environment": SOCKETS,
            "transport": "socket",
            "second": THOR,
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 2,
        },
    ),
    "mixed-transport": (
        {"second": THOR, "transport": "socket"},
        {"second": THOR, "transport": "socket", "environment": SOCKETS},
    ),
    "tensor-parallel-size": ({"tensor_parallel_size": 3, "count": 3}, {"tensor_parallel_size": 4, "count": 4}),
    "pipeline-speed": (
        {"tensor_parallel_size": 1, "pipeline_parallel_size": 2},
        {"tensor_parallel_size": 1, "pipeline_parallel_size": 3, "count": 3},
    ),
    "ring-environment": (
        {"topology": "ring", "environment": RING, "count": 4, "tensor_parallel_size": 4},
        {"topology": "ring", "environment": RING, "count": 3, "tensor_parallel_size": 1, "pipeline_parallel_size": 3},
    ),
    "ring-nccl": (
        {"topology": "ring", "environment": RING, "nccl": "2.29.3"},
        {"topology": "ring", "environment": RING, "nccl": "2.30.4"},
    ),
    "host-ip": ({"own": {"VLLM_HOST_IP": "10.110.0.1"}}, {"own": {"VLLM_HOST_IP": "10.110.0.9"}}),
    "socket-interface": ({"own": {"GLOO_SOCKET_IFNAME": None}}, {"own": {"GLOO_SOCKET_IFNAME": "eth1"}}),
    "gpudirect-rdma": ({"environment": {"NCCL_NET_GDR_LEVEL": "SYS"}}, {"environment": {"NCCL_NET_GDR_LEVEL": "0"}}),
    "nccl-net-plugin": (
        container(NGC, executor="mp"),
        container(NGC, executor="mp", environment={"NCCL_NET_PLUGIN": "none"}),
    ),
    "nccl-cross-nic": (
        {"environment": {"NCCL_CROSS_NIC": "1", "NCCL_IB_HCA": "=rocep1s0f1:1,roceP2p1s0f1:1"}},
        {"environment": {"NCCL_CROSS_NIC": "0", "NCCL_IB_HCA": "=rocep1s0f1:1,roceP2p1s0f1:1"}},
    ),
    "environment-differs": ({"own": {"VLLM_USE_DEEP_GEMM": "0"}}, {"environment": {"VLLM_USE_DEEP_GEMM": "0"}}),
    "idle-stall": (
        {"release": "0.27.1", "count": 4, "tensor_parallel_size": 4, "arguments": DRAFT},
        {"release": "0.28.0", "count": 4, "tensor_parallel_size": 4, "arguments": DRAFT},
    ),
    "driver-590": ({"node": {"driver": "590.48.01"}}, {"node": {"driver": "580.178.04"}}),
    "driver-old": ({"node": {"driver": "580.82.07"}}, {"node": {"driver": "580.95.05"}}),
    "driver-differs": ({"second": {"driver": "580.178.04"}}, {"second": THOR, "environment": SOCKETS}),
    "kernel-differs": ({"second": {"kernel": "6.17.0-1031-nvidia"}}, {"second": {"kernel": ""}}),
    "os-level-differs": (
        {"node": {"level": "7.5.0"}, "second": {"level": "7.6.0"}},
        {"node": {"level": "7.5.0"}, "second": {"level": ""}},
    ),
    "kernel-cma": (
        {"node": {"cma_free_bytes": 9 * GIB}},
        {"node": {"cma_free_bytes": 9 * GIB, "cma_total_bytes": 10 * GIB}},
    ),
    "kernel-7-0-0-1019": ({"node": {"kernel": "7.0.0-1019-nvidia"}}, {"node": {"kernel": "7.0.0-1020-nvidia"}}),
    "kernel-6-17-0-1008": ({"node": {"kernel": "6.17.0-1008-nvidia"}}, {"node": {"kernel": "6.17.0-1031-nvidia"}}),
    "ray-memory-monitor": (
        {"environment": {"RAY_memory_monitor_refresh_ms": None, "RAY_memory_usage_threshold": "1.0"}},
        {"environment": {"RAY_memory_monitor_refresh_ms": None}, "executor": "mp"},
    ),
    "ray-missing": (
        container("nvcr.io/nvidia/vllm:26.05.post1-py3"),
        container("nvcr.io/nvidia/vllm:26.05.post1-py3", executor="mp"),
    ),
    "nnodes-ray": ({"arguments": {"--nnodes": "2"}}, {"arguments": {"--nnodes": "2"}, "executor": "mp"}),
    "image-not-pinned": (container("eugr/spark-vllm"), container("vllm/vllm-openai:v0.32.0", executor="mp")),
    "triton-ptxas": (container(NGC), container(NGC, environment={"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"})),
    "thor-ptxas": ({"release": "0.26.0", "node": THOR}, {"release": "0.27.1", "node": THOR}),
    "thor-kernels": ({"release": "0.19.0", "node": THOR}, {"release": "0.20.0", "node": THOR}),
    "api-without-key": ({"api_host": "0.0.0.0"}, {"api_host": "0.0.0.0", "api_key": True}),
    "api-key-in-argv": ({"arguments": {"--api-key": "secret"}}, {"environment": {"VLLM_API_KEY": "secret"}}),
}


def found(rule: str, **changes: Any) -> list[Finding]:
    return [finding for finding in lint.lint(situation(**changes), {}) if finding.check.id == rule]


def test_every_rule_has_its_cases() -> None:
    assert sorted(CASES) == sorted(rule.id for rule in RULES)


FP8_CACHE = {"--kv-cache-dtype": "fp8_e4m3"}
TUNED, UNTUNED = ({"--kernel-config": {"enable_flashinfer_autotune": value}} for value in (True, False))
KERNEL = {"kernel": "7.0.0-1019-nvidia"}
CONNECTOR = {"--kv-transfer-config": '{"kv_connector": "OffloadingConnector"}'}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
INT4 = {"type": "qwen3_moe", "scheme": "int4", "moe": True, "reasoning": False}


#: Other ways into a rule, and whether it fires.
OTHERS: list[tuple[str, dict[str, Any], bool]] = [
    ("flashinfer-fp8", {**OLD, "arguments": FP8_CACHE}, True),
    ("flashinfer-fp8", {**OLD, "arguments": {**FP8_CACHE, "--attention-backend": "TRITON_ATTN"}}, False),
    ("flashinfer-fp8", {**OLD, "arguments": {**FP8_CACHE, "--attention-config": '{"backend": "flashinfer"}'}}, True),
    ("enforce-eager", {"arguments": {"--compilation-config.cudagraph_mode": "NONE"}}, True),
    ("fp4-moe-path", {**OLD, "arguments": {"--moe-backend": "cutlass"}}, True),
    ("fp4-moe-path", {**OLD, "arguments": {"--moe-backend": "auto"}}, False),
    ("fp4-moe-path", {"model": NVFP4, "release": "0.16.0"}, False),
    ("marlin-atomic-add", {**OLD, "model": INT4, "environment": NO_ATOMIC_ADD}, True),
    (
        "marlin-atomic-add",
        {**OLD, "model": DENSE_FP8, "arguments": {"--quantization": "gptq_marlin"}, "environment": NO_ATOMIC_ADD},
        True,
    ),
    # The default for experts in MXFP4, such as gpt-oss's.
    ("marlin-atomic-add", {**OLD, "environment": NO_ATOMIC_ADD}, True),
    ("marlin-atomic-add", {**OLD, "environment": NO_ATOMIC_ADD, "arguments": {"--moe-backend": "triton"}}, False),
    ("marlin-atomic-add", {**OLD, "environment": NO_ATOMIC_ADD, "model": {"moe": False}}, False),
    ("page-cache-counted", {"release": "0.19.0", "drops_caches": True}, False),
    # Only NVIDIA's images contain the plugin.
    ("nccl-net-plugin", container("vllm/vllm-openai:v0.33.0", executor="mp"), False),
    ("mxfp4-checkpoint", {"arguments": {"--quantization": "mxfp4"}, "model": {"type": "deepseek_v4"}}, False),
    (
        "mxfp4-checkpoint",
        {"arguments": {"--quantization": "mxfp4"}, "model": {"type": "deepseek_v4"}, "release": "0.19.0"},
        True,
    ),
    ("fp8-cutlass", {"model": DENSE_FP8, "release": "0.18.1"}, True),
    (
        "fp8-cutlass",
        {
            "model": DENSE_FP8,
            "release": "0.18.1",
            "environment": {"VLLM_DISABLED_KERNELS": "CutlassFP8ScaledMMLinearKernel"},
        },
        False,
    ),
    ("max-tokens-reasoning", {"arguments": {"--override-generation-config": '{"max_new_tokens": 256}'}}, True),
    ("max-tokens-reasoning", {"arguments": {"--override-generation-config": "no JSON"}}, False),
    ("host-ip", {"own": {"VLLM_HOST_IP": None}}, True),
    ("host-ip", {"own": {"VLLM_HOST_IP": "127.0.1.1"}}, True),
    ("gpudirect-rdma", {"environment": {"NCCL_DMABUF_ENABLE": "1"}}, True),
    ("nccl-ib-hca-half", {"environment": {"NCCL_IB_HCA": "mlx5_0"}}, False),
    ("kernel-7-0-0-1019", {"node": {"kernel": "7.0.0-1019-nvidia", "cma_free_bytes": 9 * GIB}}, False),
    ("kernel-7-0-0-1019", {"node": {"kernel": "7.0.0-31-generic"}}, True),
    ("kernel-7-0-0-1019", {"node": {"kernel": "7.0.0-1019-nvidia", "kernel_options": ("kho=off",)}}, False),
    ("kernel-7-0-0-1019", {"node": {"kernel": "7.0.0-1019-nvidia", "kernel_options": ("kho=on",)}}, True),
    ("kernel-7-0-0-1019", {"node": {"kernel": "7.0.0-30-generic"}}, False),
    ("kernel-7-0-0-1019", {"node": {"kernel": "7.0.0-310-generic"}}, False),
    # 919 MiB were enough to fail on one pair.
    ("kernel-cma", {"node": {"cma_free_bytes": 919 * 2**20}}, True),
    ("kernel-cma", {"node": {"cma_free_bytes": 9 * GIB}, "transport": "socket"}, False),
    # The hang needs neither CUDA graphs nor RoCE, but it needs several nodes.
    ("nccl-arm-hang", {"nccl": "2.28.9", "arguments": {"--enforce-eager": True}}, True),
    ("nccl-arm-hang", {"nccl": "2.28.9", "environment": SOCKETS, "transport": "socket"}, True),
    ("nccl-arm-hang", {"nccl": "2.29.7"}, False),
    ("nccl-arm-hang", {"nccl": "2.28.9", "nccl_gcc": ["13.3.0"]}, False),
    ("nccl-arm-hang", {"nccl": "2.28.9", "nccl_gcc": ["8.5.0", "13.3.0"]}, True),
    ("nccl-arm-hang", {"nccl": "2.28.9", "count": 1, "tensor_parallel_size": 1}, False),
    ("nccl-cross-nic", {"environment": {"NCCL_CROSS_NIC": "1", "NCCL_IB_HCA": "rocep1s0f1"}}, False),
    ("nccl-cross-nic", {"environment": {"NCCL_CROSS_NIC": "1"}, "transport": "socket"}, False),
    ("idle-stall", {"release": "0.27.1", "count": 4, "tensor_parallel_size": 4}, False),
    ("idle-stall", {"release": "0.26.0", "count": 4, "tensor_parallel_size": 4, "arguments": DRAFT}, False),
    (
        "idle-stall",
        {
            "release": "0.27.0",
            "count": 3,
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 3,
            "arguments": DRAFT,
        },
        False,
    ),
    (
        "expandable-segments-connector",
        {"release": "0.21.0", "arguments": CONNECTOR, "environment": EXPANDABLE},
        False,
    ),
    ("expandable-segments-connector", {"arguments": CONNECTOR, "environment": EXPANDABLE}, True),
    (
        "expandable-segments-connector",
        {"arguments": {**CONNECTOR, "--enable-sleep-mode": True}, "environment": EXPANDABLE},
        False,
    ),
    (
        "expandable-segments-connector",
        {"arguments": CONNECTOR, "environment": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}},
        False,
    ),
    ("api-without-key", {"api_host": "::1"}, False),
    ("api-without-key", {"api_host": "10.110.0.1"}, True),
    ("image-not-pinned", container("registry.example:5000/vllm:nightly-20261015"), True),
    ("image-not-pinned", container("registry.example:5000/vllm:nightly@sha256:1"), False),
    ("ray-missing", container("vllm/vllm-openai:v0.27.1-aarch64"), True),
    ("ray-missing", container("vllm/vllm-openai:v0.17.1"), False),
    ("flashinfer-fp8", {**OLD, "model": {"kv_dtype": "fp8"}}, True),
    ("flashinfer-fp8", {**OLD, "model": {"kv_dtype": "fp8"}, "arguments": {"--kv-cache-dtype": "auto"}}, True),
    ("flashinfer-fp8", {**OLD, "model": {"kv_dtype": "fp8"}, "arguments": {"--kv-cache-dtype": "bfloat16"}}, False),
    ("flashinfer-fp8", {**OLD, "model": {"kv_dtype": "bfloat16"}}, False),
    ("ray-missing", container("registry.example/vllm:1", image_has_ray=False), True),
    ("ray-missing", container("registry.example/vllm:1", image_has_ray=False, executor="mp"), False),
    ("ray-missing", container("nvcr.io/nvidia/vllm:26.05-py3", image_has_ray=True), False),
    ("bridge-network", container("a@sha256:1", container={"--ipc": ("gb10_container_args[0]", "private")}), True),
    ("bridge-network", container("a@sha256:1", container={"--ipc": ("gb10_container_args[0]", "host")}), False),
    ("bridge-network", container("a@sha256:1", container={"--pid": ("gb10_container_args[0]", "host")}), True),
    (
        "bridge-network",
        container("a@sha256:1", container={"--pid": ("gb10_container_args[0]", "host")}, executor="mp"),
        False,
    ),
    # Rules are about their GPUs.
    *(
        row
        for capability in ("9.0", None)
        for row in (
            ("enforce-eager", {"arguments": {"--enforce-eager": True}, "node": {"capability": capability}}, False),
            ("api-without-key", {"api_host": "0.0.0.0", "node": {"capability": capability}}, True),
        )
    ),
    # An unknown release counts as new, and so does a build that knows none.
    *(
        row
        for release in ("", "main", "0.1.dev20482+g83cb22a0e")
        for row in (
            ("page-cache-counted", {"release": release}, False),
            ("fp4-moe-path", {"release": release, "model": NVFP4}, False),
        )
    ),
    # A build after a release counts as the next one.
    ("load-pressure", {"release": "0.22.1rc1.dev9+g1"}, True),
    ("load-pressure", {"release": "0.23.1rc1.dev790+g85d955ed5"}, False),
    ("driver-590", {"node": {"driver": "595.84"}}, False),
    ("kernel-differs", {"node": {"next_kernel": "6.17.0-1032"}, "second": {"next_kernel": "6.17.0-1031"}}, True),
    ("nccl-net-plugin", container("nvcr.io/nvidia/vllm:26.10-py3", executor="mp"), False),
    *(
        ("autotune-cache", {"release": release, "arguments": {"--enable-flashinfer-autotune": None}, **more}, found)
        for release, more, found in (
            ("0.26.0", {}, False),
            ("0.27.0", {}, True),
            ("0.31.0", {}, True),
            ("", {}, False),
            ("0.28.0", {"executor": "mp"}, True),
            ("0.28.0", {"executor": "mp", "environment": {"VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": "/tmp/x"}}, False),
            ("0.28.0", {"arguments": {"--enable-flashinfer-autotune": None, **UNTUNED}}, False),
            ("0.28.0", {"arguments": {"--enable-flashinfer-autotune": False}}, False),
        )
    ),
    ("flashinfer-autotune", {"arguments": {"--enable-flashinfer-autotune": None, **TUNED}}, True),
    ("flashinfer-autotune", {"arguments": {"--enable-flashinfer-autotune": None}, "node": KERNEL}, True),
    ("flashinfer-autotune", {"node": KERNEL}, False),
    ("flashinfer-autotune", {"arguments": {"--enable-flashinfer-autotune": None, **UNTUNED}, "node": KERNEL}, False),
]
OTHERS += [(rule, changes[not fires], fires) for rule, changes in CASES.items() for fires in (True, False)]


@pytest.mark.parametrize(("rule", "changes", "fires"), OTHERS)
def test_a_rule_fires_for_its_case_and_not_nearby(rule: str, changes: dict[str, Any], fires: bool) -> None:
    findings = found(rule, **changes)
    assert bool(findings) is fires
    for finding in findings:
        assert re.fullmatch(r"(gb10_|vllm_)?\w+(\[\d\])?(\.[\w.-]+)?", finding.place), finding.place
        assert finding.found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "nccl": "",
            "node": {"driver": "", "kernel": "", "memory_bytes": 0},
            "model": {"type": "", "scheme": "unknown", "weights_bytes": None},
        },
    ],
    ids=["a plain pair", "what is not known"],
)
def test_nothing_is_held_against_a_plain_pair(changes: dict[str, Any]) -> None:
    assert lint.report(lint.lint(situation(**changes), {})) == []


@pytest.mark.parametrize(("topology", "count"), [("direct", 2), ("switch", 4), ("ring", 3), ("ring", 4)])
def test_the_environment_of_the_plan_passes(topology: str, count: int) -> None:
    hcas = ["rocep1s0f1", "roceP2p1s0f1"]
    kept = {name: None for name in PLAN["nodes"][0]["environment"] if name.startswith(("NCCL", "UCX"))}
    own: dict[str, str | None] = {
        **kept,
        **fabric_environment.variables(topology, [(0, 1)] * count, "10.110.0.1", "enp1s0f1np1", hcas),
    }
    del own["VLLM_HOST_IP"]
    split = {"tensor_parallel_size": 1, "pipeline_parallel_size": 3} if count == 3 else {"tensor_parallel_size": count}
    assert lint.lint(situation(environment=own, count=count, topology=topology, **split), {}) == []


def test_a_mixed_cluster_as_the_plan_starts_it_passes() -> None:
    environment = {
        **fabric_environment.variables("socket", [(), ()], "10.0.0.1", "eth0", []),
        "NCCL_IB_HCA": None,
        "NCCL_IB_MERGE_NICS": None,
    }
    del environment["VLLM_HOST_IP"]
    changes = {
        "topology": "socket",
        "transport": "socket",
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 2,
        "second": THOR,
    }
    changes |= {"node": {"fabric": environment}}
    own = {"VLLM_DISABLED_KERNELS": "a rank of another GPU may need others"}
    assert lint.lint(situation(environment=environment, own=own, **changes), {}) == []
    assert found("environment-differs", environment=environment, own={"NCCL_PROTO": "LL"}, **changes)


def test_secrets_are_not_shown() -> None:
    (finding,) = found("environment-differs", own={"HF_TOKEN": "hf_secret"})
    assert finding.found == "another value on spark2, unset on spark1"


def test_findings_are_sorted_and_plain() -> None:
    arguments = {"--enforce-eager": True, "--gpu-memory-utilization": "0.95"}
    findings = lint.lint(situation(arguments=arguments, api_host="0.0.0.0"), {})
    ids = ["memory-utilization-ceiling", "api-without-key", "enforce-eager"]
    assert [finding.check.id for finding in findings] == ids
    assert [finding.check.id for finding in lint.stopping(findings)] == ids[:1]
    assert lint.stopping(findings, WARNING) == findings
    assert json.loads(json.dumps(lint.facts(findings[0])))["path"] == "gb10_vllm_extra_args.--gpu-memory-utilization"
    places = [finding.place for finding in lint.on_host(findings)]
    assert places[::2] == ["argv.--gpu-memory-utilization", "argv.--enforce-eager"]


def test_a_waiver_keeps_the_finding_and_lets_it_pass() -> None:
    high = situation(arguments={"--gpu-memory-utilization": "0.95"})
    (finding,) = lint.lint(high, {"memory-utilization-ceiling": " measured here "})
    assert (finding.check.severity, finding.waived) == ("error", "measured here")
    assert lint.stopping([finding]) == []
    assert lint.report([finding])[0].startswith(
        "error (waived: measured here) memory-utilization-ceiling, gb10_vllm_extra_args.--gpu-mem"
    )


@pytest.mark.parametrize(
    ("waivers", "places", "expected"),
    [
        ({}, {}, ["gb10_vllm_extra_args.--gpu-memory-utilization"]),
        ({}, {"gb10_vllm_extra_args.--gpu-memory-utilization": "recipe.x"}, ["recipe.x"]),
        ({"memory-utilization-ceiling": "measured"}, {}, []),
        ({"no-such-rule": "because"}, {}, ["gb10_serve_waivers.no-such-rule"]),
    ],
)
def test_an_error_without_a_waiver_is_a_problem_of_its_place(
    waivers: dict[str, str], places: dict[str, str], expected: list[str]
) -> None:
    high = situation(arguments={"--gpu-memory-utilization": "0.95"})
    assert [problem.path for problem in lint.judge(high, high.arguments, waivers, places)[1]] == expected


def test_a_problem_that_is_not_of_an_argument_keeps_its_place() -> None:
    mixed = situation(second=THOR, transport="socket")
    problems = lint.judge(mixed, mixed.arguments, {}, {"NCCL_IB_DISABLE": "recipe"})[1]
    assert [problem.path for problem in problems] == ["gb10_extra_env.NCCL_IB_DISABLE"]
    assert lint.judge(None, {}, {}, {}) == ([], [])


def test_a_waiver_that_is_not_needed_is_said() -> None:
    (finding,) = lint.lint(situation(), {"enforce-eager": "why not"})
    expected = ("waiver-unused", "info", "gb10_serve_waivers.enforce-eager")
    assert (finding.check.id, finding.check.severity, finding.place) == expected


def test_wrong_waivers_are_listed_together() -> None:
    with pytest.raises(ProblemsError) as caught:
        lint.lint(situation(), {"enforce-eager": "  ", "no-such-rule": "because", "waiver-unused": "because"})
    assert [problem.path for problem in caught.value.problems] == [
        "gb10_serve_waivers.enforce-eager",
        "gb10_serve_waivers.no-such-rule",
        "gb10_serve_waivers.waiver-unused",
    ]


def test_the_report_says_who_and_when_and_who_contradicts() -> None:
    (line,) = lint.report(lint.lint(situation(nccl="2.28.9"), {}))
    for part in (
        "warning nccl-arm-hang, nccl: 2.28.9. ",
        "Fix: set nccl_sm121_build_enabled: auto, or use NCCL 2.29.3",
        "NVIDIA/nccl#2353",
        "2026-08-27",
        "not tested here",
        "Disputed: DGX OS",
    ):
        assert part in line


HOST = {
    "name": "spark1",
    "gpu": {"gpus": [{"capability": "12.1"}], "driver_version": "590.48.01", "memory_bytes": 121 * GIB},
    "kernel": "7.0.0-1019-nvidia",
    "meminfo": "MemTotal: 1 kB\nCmaTotal:       0 kB\nCmaFree:  9751552 kB\n",
    "rdma": {"rocep1s0f0": {"interface": "enp1s0f0np0", "state": "ACTIVE", "link_layer": "Ethernet", "gids": []}},
    "nccl": "",
    "image": "",
    "network": "",
}


def test_a_host_and_its_command_make_a_situation() -> None:
    own = {"--reasoning-parser": "qwen3", "--enable-flashinfer-autotune": False}
    arguments = {
        "--tensor-parallel-size": "2",
        "--gpu-memory-utilization": "0.8",
        "--kv-cache-memory-bytes": "24G",
        **own,
    }
    environment = {"VLLM_HOST_IP": "10.0.0.1", "NCCL_IB_HCA": "rocep1s0f0"}
    config = {"model_type": "a", "text_config": {"num_experts": 128}, "quantization_config": {"quant_method": "fp8"}}
    seen = rules_context.of_host(arguments, environment, "0.32.0", HOST, config)
    assert (seen.transport, seen.api_host, seen.runtime) == ("roce", "0.0.0.0", "native")
    model = {
        "name": "",
        "type": "a",
        "scheme": "fp8",
        "moe": True,
        "reasoning": True,
        "weights_bytes": None,
        "kv_dtype": "bfloat16",
    }
    assert vars(seen.model) | {"name": ""} == model
    assert [finding.check.id for finding in lint.lint(seen, {})] == [
        "kernel-cma",
        "api-without-key",
        "driver-590",
        "nccl-ib-hca-half",
        "socket-interface",
        "socket-interface",
    ]


DOWN = {"rocep1s0f0": {**HOST["rdma"]["rocep1s0f0"], "state": "DOWN"}}


@pytest.mark.parametrize(
    ("host", "environment", "size", "expected"),
    [
        ({}, {"NCCL_IB_DISABLE": "1"}, "2", ["'1' on spark1"]),
        ({}, {"NCCL_NET": "Socket"}, "2", ["'Socket' on spark1"]),
        ({"rdma": DOWN}, {"NCCL_IB_DISABLE": "1"}, "2", []),
        ({"rdma": {}}, {"NCCL_IB_DISABLE": "1"}, "2", []),
        ({}, {}, "2", []),
        ({}, {"NCCL_IB_DISABLE": "1"}, "1", []),
    ],
)
def test_a_host_with_a_cable_shows_that_sockets_replace_roce(
    host: dict[str, Any], environment: dict[str, str], size: str, expected: list[str]
) -> None:
    seen = rules_context.of_host({"--tensor-parallel-size": size}, environment, "0.32.0", {**HOST, **host}, None)
    assert [each.found for each in lint.lint(seen, {}) if each.check.id == "roce-disabled"] == expected


def test_a_host_without_a_gpu_or_a_model_is_no_situation_for_most_rules() -> None:
    host = {**HOST, "gpu": {"gpus": [], "driver_version": None, "memory_bytes": None}, "meminfo": ""}
    seen = rules_context.of_host({"--headless": True, "--enforce-eager": True}, {}, "0.18.1", host, None)
    assert (seen.transport, seen.model.scheme, seen.nodes[0].head) == ("none", "unknown", False)
    assert lint.lint(seen, {}) == []


LOADED, MAPPED = {"--load-format": "fastsafetensors"}, {"--load-format": "auto"}
ONE, MANY = {"count": 1, "tensor_parallel_size": 1}, {"count": 4, "tensor_parallel_size": 4, "arguments": DRAFT}


@pytest.mark.parametrize(
    ("rule", "fires", "passes"),
    [
        ("driver-old", {"node": {"driver": "580.94.99"}}, {"node": {"driver": "580.95"}}),
        ("driver-old", {"node": {"driver": "579.999"}}, {"node": {"driver": ""}}),
        ("driver-590", {"node": {"driver": "590.1"}}, {"node": {"driver": "589.99"}}),
        ("memory-utilization-high", {"arguments": {"--gpu-memory-utilization": "0.90"}}, {"arguments": {"--gpu-memory-utilization": "0.901"}}),
        # Two ranks share the weights; a node has 121 GiB.
        (
            "fastsafetensors-large",
            {"arguments": LOADED, "model": {"weights_bytes": int(0.81 * 242 * GIB)}},
            {"arguments": LOADED, "model": {"weights_bytes": int(0.8 * 242 * GIB)}},
        ),
        (
            "fastsafetensors-large",
            {"arguments": LOADED, "model": {"weights_bytes": 100 * GIB}, **ONE},
            {"arguments": LOADED, "model": {"weights_bytes": 0}, **ONE},
        ),
        ("mapped-weights", {"arguments": {"--load-format": None}}, {"arguments": {"--load-format": None, "--safetensors-load-strategy": "eager"}}),
        ("mapped-weights", {"arguments": MAPPED, "model": {"weights_bytes": 9 * GIB}, **ONE}, {"arguments": MAPPED, "model": {"weights_bytes": 16 * GIB}}),
        # The plan names no other loader there.
        ("mapped-weights", {"arguments": MAPPED | DRAFT}, {"arguments": MAPPED | DRAFT, "tensor_parallel_size": 1, "pipeline_parallel_size": 2}),
        ("mapped-weights", {"arguments": MAPPED}, {"arguments": MAPPED | {"--config-format": "mistral"}}),
        ("mapped-weights", {"arguments": MAPPED}, {"arguments": MAPPED, "model": {"type": "mistral3"}}),
        ("mapped-weights", {"arguments": MAPPED}, {"arguments": MAPPED, "transport": "socket"}),
        ("fastsafetensors-ngc", container("nvcr.io/nvidia/vllm:26.03-py3", arguments=LOADED), container("nvcr.io/nvidia/vllm:26.03-py3")),
        ("unequal-memory", {"second": {"memory_bytes": 108 * GIB}}, {"second": {"memory_bytes": 109 * GIB}}),
        ("swap-space", {"release": "0.17.9"}, {"release": "0.18.0"}),
        ("load-pressure", {"release": "0.20.0"}, {"release": "0.19.9"}),
        ("page-cache-counted", {"release": "0.19.9"}, {"release": "1.0.0"}),
        ("flashinfer-autotune", {"release": "0.16.0", "arguments": {"--enable-flashinfer-autotune": None}, "node": KERNEL},
         {"release": "0.15.1", "arguments": {"--enable-flashinfer-autotune": None}, "node": KERNEL}),
        ("expandable-segments-connector", {"release": "0.22.0", "arguments": CONNECTOR, "environment": EXPANDABLE}, {"release": "0.22.0"}),
        ("flashinfer-fp8", {"release": "0.19.9", "arguments": FP8_CACHE}, {"release": "0.20.0", "arguments": FP8_CACHE}),
        ("flashinfer-fp8", {"release": "0.16.0", "arguments": FP8_CACHE}, {"release": "0.15.9", "arguments": FP8_CACHE}),
        ("fp4-moe-path", {"model": NVFP4, "release": "0.17.0"}, {"model": NVFP4, "release": "0.16.9"}),
        ("fp4-moe-path", {"model": NVFP4, "release": "0.19.9"}, {"model": NVFP4, "release": "0.20.0"}),
        ("marlin-atomic-add", {"model": INT4, "environment": NO_ATOMIC_ADD, "release": "0.19.9"},
         {"model": INT4, "environment": NO_ATOMIC_ADD, "release": "0.20.0"}),
        (
            "linear-backend-strict",
            {"release": "0.22.0", "arguments": {"--linear-backend": "triton"}},
            {"release": "0.21.9", "arguments": {"--linear-backend": "triton"}},
        ),
        ("fp8-cutlass", {"release": "0.19.9", "model": DENSE_FP8}, {"release": "0.20.0", "model": DENSE_FP8}),
        ("idle-stall", {**MANY, "release": "0.27.0"}, {**MANY, "release": "0.26.9"}),
        ("thor-ptxas", {"release": "0.26.9", "node": THOR}, {"release": "0.26.9", "node": THOR, "arguments": {"--enforce-eager": True}}),
        # Four ranks of a pipeline share the weights as those of tensor parallelism do.
        (
            "fastsafetensors-large",
            {"arguments": LOADED, "model": {"weights_bytes": int(0.81 * 484 * GIB)}, "count": 4, "pipeline_parallel_size": 2},
            {"arguments": LOADED, "model": {"weights_bytes": int(0.8 * 484 * GIB)}, "count": 4, "pipeline_parallel_size": 2},
        ),
        (
            "max-tokens-reasoning",
            {"arguments": {"--override-generation-config": {"max_new_tokens": 511}}},
            {"arguments": {"--override-generation-config": {"max_new_tokens": 512}}},
        ),
        ("host-ip", {**MANY, "environment": {"VLLM_HOST_IP": None}}, MANY),
        ("ring-nccl", {"topology": "ring", "environment": RING, "nccl": "2.29.9"}, {"topology": "ring", "environment": RING, "nccl": "2.30.0"}),
        ("ray-missing", container("vllm/vllm-openai:v0.27.1"), container("vllm/vllm-openai:v0.27.0")),
        ("ray-missing", container("nvcr.io/nvidia/vllm:26.05-py3"), container("nvcr.io/nvidia/vllm:26.04-py3")),
        ("triton-ptxas", container("nvcr.io/nvidia/vllm:26.03-py3"), container("nvcr.io/nvidia/vllm:26.05-py3")),
        ("triton-ptxas", container(NGC, environment={"TRITON_PTXAS_PATH": ""}), container("nvcr.io/nvidia/vllm:26.02-py3")),
        ("nnodes-ray", {"arguments": {"--nnodes": "3"}}, {"arguments": {"--nnodes": "1"}}),
        ("max-tokens-reasoning", {"smoke_tokens": 511}, {"smoke_tokens": 512}),
        ("pipeline-speed", {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "count": 4}, {"tensor_parallel_size": 4, "count": 4}),
        ("kernel-cma", {"node": {"cma_free_bytes": 1, "cma_total_bytes": 0}}, {"node": {"cma_free_bytes": 1, "cma_total_bytes": 1}}),
        ("cudagraph-mode", {"arguments": {"--compilation-config.cudagraph_mode": "PIECEWISE"}},
         {"arguments": {"--compilation-config.cudagraph_mode": "PIECEWISE"}, **ONE}),
        (
            "breakable-cudagraph",
            {"release": "0.24.9", "environment": BREAKABLE},
            {"release": "0.24.9", "environment": BREAKABLE, **ONE},
        ),
        ("socket-interface", {"environment": {"GLOO_SOCKET_IFNAME": None}}, {"environment": {"GLOO_SOCKET_IFNAME": None}, **ONE}),
        ("host-ip", {"environment": {"VLLM_HOST_IP": None}}, {"environment": {"VLLM_HOST_IP": None}, **ONE}),
        ("nccl-arm-hang", {"nccl": "2.29.2", "nccl_gcc": ["13.3.0", "8.5.0"]}, {"nccl": ""}),
        ("nccl-gid-index", {"environment": {"NCCL_IB_GID_INDEX": "3"}}, {"environment": {"NCCL_IB_GID_INDEX": "3"}, **ONE}),
        ("tensor-parallel-size", {"tensor_parallel_size": 6, "count": 6}, {"tensor_parallel_size": 1, "pipeline_parallel_size": 2}),
    ],
)  # fmt: skip
def test_the_limits_of_a_rule(rule: str, fires: dict[str, Any], passes: dict[str, Any]) -> None:
    assert found(rule, **fires)
    assert found(rule, **passes) == []


def test_a_finding_about_nodes_names_the_different_one() -> None:
    (driver,) = found("driver-differs", second={"driver": "580.178.04"}, count=3)
    assert (driver.place, driver.found) == ("nodes[1].driver", "580.178.04 on spark2, 580.142 on spark1")
    (memory,) = found("unequal-memory", second={"memory_bytes": 60 * GIB})
    assert (memory.place, memory.found) == ("nodes[1].memory_bytes", "60 GiB; another node has 121 GiB")
    cma, _second = found("kernel-cma", node={"cma_free_bytes": 9 * GIB, "cma_total_bytes": GIB // 2})
    assert (cma.place, cma.found) == ("nodes[0].kernel", "CmaFree 9.0 GiB, CmaTotal 0.5 GiB, kernel 6.17.0-1032-nvidia")
    (loaded,) = found("fastsafetensors-large", arguments=LOADED, model={"weights_bytes": 109 * GIB}, **ONE)
    assert loaded.found == "fastsafetensors with weights that are 90% of a node's memory"
    assert [each.found for release in ("0.19.9", "0.20.0") for each in found(
        "memory-utilization-default", release=release, arguments={"--gpu-memory-utilization": None})] == [
        "not given, so vLLM uses 0.9", "not given, so vLLM uses 0.92"]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "changes", "path", "text"),
    [
        ("bridge-network", container("a@sha256:1", network="bridge"), "network", "bridge"),
        ("bridge-network", container("a@sha256:1", network=""), "network", "not given"),
        (
            "bridge-network",
            container("a@sha256:1", network="none", container={"--network": ("gb10_container_args[3]", "none")}),
            "gb10_container_args[3]",
            "none",
        ),
        (
            "bridge-network",
            container("a@sha256:1", container={"--user": ("gb10_container_args[0]", "0")}),
            "gb10_container_args[0]",
            "--user=0",
        ),
        (
            "tp-over-sockets",
            {"environment": SOCKETS, "transport": "socket"},
            "gb10_tensor_parallel_size",
            "2 over sockets",
        ),
        (
            "fp4-moe-path",
            {**OLD, "model": NVFP4},
            "gb10_vllm_extra_args.--moe-backend",
            "not given, so vLLM uses CUTLASS for NVFP4",
        ),
        ("nnodes-ray", {"arguments": {"--nnodes": "2"}}, "gb10_vllm_extra_args.--nnodes", "2 with Ray"),
        ("ring-nccl", {"topology": "ring", "environment": RING, "nccl": "2.29.3"}, "nccl", "2.29.3"),
        (
            "nccl-ib-hca-half",
            {"own": {"NCCL_IB_HCA": "rocep1s0f1,rocep1s0f0,roceP2p1s0f0"}},
            "gb10_extra_env.NCCL_IB_HCA",
            "",
        ),
        (
            "nccl-cross-nic",
            {"environment": {"NCCL_CROSS_NIC": "1"}},
            "gb10_extra_env.NCCL_CROSS_NIC",
            "'1' on spark1, spark2",
        ),
        ("socket-interface", {"own": {"NCCL_SOCKET_IFNAME": ""}}, "gb10_extra_env.NCCL_SOCKET_IFNAME", "'' on spark2"),
    ],
)
def test_the_place_and_the_value_of_a_finding(rule: str, changes: dict[str, Any], path: str, text: str) -> None:
    findings = found(rule, **changes)
    assert [finding.place for finding in findings] == ([path] if path else [])
    assert all(text in finding.found for finding in findings)


@pytest.mark.parametrize(
    ("arguments", "environment", "changes", "expected"),
    [
        ({}, {}, {}, {"transport": "none", "tensor_parallel_size": 1, "executor": "mp", "api_key": False, "smoke_tokens": 512}),
        ({"--nnodes": "2"}, {}, {}, {"transport": "roce"}),
        ({"--nnodes": "1", "--tensor-parallel-size": "x"}, {}, {}, {"transport": "none", "tensor_parallel_size": 1}),
        ({"--pipeline-parallel-size": 2}, {"NCCL_IB_DISABLE": "1"}, {}, {"transport": "socket", "pipeline_parallel_size": 2}),
        ({"--tensor-parallel-size": 2}, {"NCCL_IB_DISABLE": "0"}, {}, {"transport": "roce"}),
        ({"--tensor-parallel-size": 2}, {}, {"gpu": {"gpus": [], "driver_version": None, "memory_bytes": None}}, {"transport": "socket"}),
        ({"--host": "10.0.0.1", "--api-key": "x"}, {}, {}, {"api_host": "10.0.0.1", "api_key": True}),
        ({"--headless": True}, {"VLLM_API_KEY": "x"}, {}, {"api_host": "", "api_key": True}),
        ({"--distributed-executor-backend": "ray"}, {}, {"image": "a", "network": "b"}, {"executor": "ray", "runtime": "container", "network": "b"}),
    ],
)  # fmt: skip
def test_the_situation_of_a_command(
    arguments: dict[str, Any], environment: dict[str, str], changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    seen = rules_context.of_host(arguments, environment, "0.32.0", {**HOST, **changes}, None)
    assert {name: getattr(seen, name) for name in expected} == expected


@pytest.mark.parametrize(("more", "moe"), [({}, False), ({"num_local_experts": 2}, True)])
def test_what_is_known_about_a_model_and_its_host(more: dict[str, int], moe: bool) -> None:
    config = {"model_type": "qwen3", "num_experts": 1, "max_position_embeddings": 40960, **more}
    seen = rules_context.of_host({}, {"A": "1"}, "0.32.0", HOST, config)
    assert (seen.model.moe, seen.model.reasoning) == (moe, False)
    assert vars(seen.nodes[0]) == {
        "name": "spark1",
        "head": True,
        "memory_bytes": 121 * GIB,
        "capability": "12.1",
        "driver": "590.48.01",
        "kernel": "7.0.0-1019-nvidia",
        "cma_free_bytes": 9751552 * 1024,
        "level": "",
        "next_kernel": "",
        "kernel_options": (),
        "cma_total_bytes": 0,
        "environment": {"A": "1"},
        "fabric": {"NCCL_IB_DISABLE": "0"},
    }


@pytest.mark.parametrize(
    ("given", "text", "number"),
    [
        ("1.5k", "1.5k", 1500),
        ("2K", "2K", 2048),
        ("3g", "3g", 3e9),
        ("4G", "4G", 4 * GIB),
        (".5m", ".5m", 5e5),
        ("1M", "1M", 2**20),
        ("x", "x", None),
        (["a", 1], "a 1", None),
        ({"a": 1}, '{"a": 1}', None),
        (False, "", None),
        (None, "", None),
    ],
)
def test_an_argument_as_text_and_as_a_number(given: Any, text: str, number: float | None) -> None:
    values = Arguments({"--x": given})
    assert (values.argument("--x"), values.number("--x")) == (text, number)


@pytest.mark.parametrize(
    ("given", "member"), [('{"b": false}', "False"), ('{"b": null}', ""), ("[]", ""), ("{", ""), ('"b"', "")]
)
def test_a_member_of_an_argument(given: str, member: str) -> None:
    assert Arguments({"--x": given}).member("--x", "b") == member


@pytest.mark.parametrize(
    ("count", "tensor", "stages", "ranks", "roce"),
    [(1, 1, 1, 1, False), (1, 2, 1, 2, True), (1, 2, 2, 4, True), (3, 1, 1, 3, True)],
)
def test_the_ranks_of_a_command_are_those_of_its_sizes(
    count: int, tensor: int, stages: int, ranks: int, roce: bool
) -> None:
    view = View({}, situation(count=count, tensor_parallel_size=tensor, pipeline_parallel_size=stages), ())
    assert (view.ranks, view.roce) == (ranks, roce)
    assert View({}, Situation(), ()).ranks == 1


@pytest.mark.parametrize(("stages", "said"), [(1, ""), (2, ", with 2 pipeline stages")])
def test_sockets_are_reported_with_the_stages_that_follow(stages: int, said: str) -> None:
    (finding, *_others) = found(
        "roce-disabled", environment={"NCCL_IB_DISABLE": "1"}, count=4, pipeline_parallel_size=stages
    )
    assert finding.found.partition("spark1, spark1")[2] == said
