"""The messages that a verification looks for in vLLM's log are those of the releases' source code."""

from __future__ import annotations

import re

import pytest
from patch import sources

from ansible_collections.gb10.cluster.plugins.module_utils.launch.choices import MESSAGES, read
from ansible_collections.gb10.cluster.plugins.module_utils.verify import evidence

_LAYERS = "model_executor/layers"
#: (file, the message in its source, the message with values, its name in the facts, the evidence)
TEXTS = [
    (
        "v1/engine/core.py",
        "Initializing a V1 LLM engine (v%s) ",
        "Initializing a V1 LLM engine (v0.33.0) with",
        "release",
        "0.33.0",
    ),
    (
        "platforms/cuda.py",
        "Using %s backend.",
        "Using AttentionBackendEnum.TRITON_ATTN backend.",
        "attention",
        "TRITON_ATTN",
    ),
    (
        "platforms/cuda.py",
        "Using %s attention backend out of potential backends: %s.",
        "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
        "attention",
        "FLASH_ATTN",
    ),
    (
        f"{_LAYERS}/fused_moe/oracle/nvfp4.py",
        "Using '{backend.value}' NvFp4 MoE backend out ",
        "Using 'MARLIN' NvFp4 MoE backend out of potential backends: []",
        "moe_backend",
        "MARLIN NvFp4",
    ),
    (
        f"{_LAYERS}/fused_moe/oracle/fp8.py",
        "Using {backend.value} Fp8 MoE backend out ",
        "Using TRITON Fp8 MoE backend out of potential backends: []",
        "moe_backend",
        "TRITON Fp8",
    ),
    (
        "model_executor/kernels/linear/__init__.py",
        "Selected %s for %s",
        "Selected MarlinKernel for GPTQ",
        "kernel",
        "MarlinKernel",
    ),
    (
        f"{_LAYERS}/fused_moe/fused_moe.py",
        "Using default MoE config. ",
        "Using default MoE config. Performance",
        "table",
        "MoE config",
    ),
    (
        f"{_LAYERS}/quantization/utils/marlin_utils_fp4.py",
        "Your GPU does not have native support for FP4 computation but ",
        "Your GPU does not have native support for FP4 computation but",
        "weight_only",
        "FP4",
    ),
    (
        "v1/worker/gpu_model_runner.py",
        "Graph capturing finished in %.0f secs",
        "Graph capturing finished in 7 secs",
        "graph_seconds",
        "7",
    ),
    (
        "v1/worker/gpu_model_runner.py",
        "Model loading took %s GiB memory and %.6f seconds",
        "Model loading took 0.61 GiB memory and 4.5 seconds",
        "model_seconds",
        "4.5",
    ),
    (
        "v1/worker/gpu_worker.py",
        "Available KV cache memory: %s GiB",
        "Available KV cache memory: 100.52 GiB",
        "kv_gib",
        "100.52",
    ),
    (
        "model_executor/model_loader/default_loader.py",
        "Loading weights took %.2f seconds",
        "Loading weights took 3.25 seconds",
        "weights_seconds",
        "3.25",
    ),
    (
        "compilation/monitor.py",
        "torch.compile took %.2f s in total",
        "torch.compile took 6.25 s in total",
        "compile_seconds",
        "6.25",
    ),
    (
        "v1/sample/ops/topk_topp_sampler.py",
        "Using FlashInfer for top-p & top-k sampling.",
        "Using FlashInfer for top-p & top-k",
        "sampler",
        "FlashInfer",
    ),
    (
        "v1/sample/ops/topk_topp_sampler.py",
        '"FlashInfer top-p/top-k sampling ',
        "FlashInfer top-p/top-k sampling disabled via",
        "sampler",
        "native",
    ),
    (
        "model_executor/warmup/kernel_warmup.py",
        "Skipping FlashInfer autotune because it is disabled.",
        "Skipping FlashInfer autotune because it",
        "autotune",
        "off",
    ),
    (
        "model_executor/warmup/kernel_warmup.py",
        "Using FlashInfer autotune cache file: %s",
        "Using FlashInfer autotune cache file: /x",
        "autotune",
        "on",
    ),
    (
        "distributed/device_communicators/pynccl.py",
        "vLLM is using nccl==%s",
        "vLLM is using nccl==2.30.7",
        "nccl",
        "2.30.7",
    ),
    (
        "v1/worker/gpu_model_runner.py",
        "Skipping CUDA graph capture. ",
        "Skipping CUDA graph capture. To",
        "graphs",
        "Skipping CUDA graph capture",
    ),
    (
        "v1/core/kv_cache_utils.py",
        "KV cache size: %s tokens",
        "GPU KV cache size: 1,024 tokens",
        "kv_cache",
        "1,024 tokens",
    ),
]


@pytest.fixture
def read_release(version: str) -> str:
    if tuple(map(int, version.split(".")[:2])) < evidence._READ[0]:
        pytest.skip("a release before those whose messages were read")
    return version


@pytest.mark.parametrize(("file", "source", "message", "name", "found"), TEXTS, ids=[message[1] for message in TEXTS])
def test_a_message_is_in_the_source(
    read_release: str, file: str, source: str, message: str, name: str, found: str
) -> None:
    if (name, found) == ("autotune", "on") and tuple(map(int, read_release.split("."))) < (0, 22):
        pytest.skip("a release without this message")
    assert source in (sources.tree(read_release) / file).read_text(encoding="utf-8")
    level = "WARNING" if MESSAGES[name].warning else "INFO"
    (process,) = read([f"(Worker pid=9) {level} 11-21 19:20:02 [a.py:1] {message}"])
    assert process["found"][name] == [found]


def test_the_engines_configuration_names_each_feature(read_release: str) -> None:
    text = (sources.tree(read_release) / "config/vllm.py").read_text(encoding="utf-8")
    words = ["speculative_config={self.speculative_config!r}, ", "device_config={self.device_config.device}, "]
    words.append("enable_prefix_caching={self.cache_config.enable_prefix_caching}, ")
    assert [word for word in words if word not in text] == []
    assert re.search(r"def __str__\(self\)", text)
