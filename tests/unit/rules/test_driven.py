"""Each rule is driven from inventory variables and facts of nodes through the plan to its finding, or from where its
data declares."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from cluster_nodes import KNOWN, Node, lock_of, spark
from verified_nodes import findings, pair

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster_plan
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import Level, State
from ansible_collections.gb10.cluster.plugins.module_utils.rules import context
from ansible_collections.gb10.cluster.plugins.module_utils.rules.lint import RULES, WAIVERS, lint
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import VERIFY
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

GIB = 2**30
GPT_OSS, NVFP4, FP8, UNREAD = "gpt-oss-120b", "nemotron-3-nano-30b-a3b-nvfp4", "qwen3.5-122b-a10b-fp8", "org/unread"
IMAGE = f"vllm/vllm-openai@sha256:{'0' * 64}"
NGC = {"gb10_stack": "ngc-26.04", "gb10_distributed_executor_backend": "mp", "gb10_runtime_lock": ""}
OTHER_NGC = {
    "gb10_runtime": "container",
    "gb10_container_image": "nvcr.io/nvidia/vllm:26.03-py3",
    "gb10_distributed_executor_backend": "mp",
}
IN_IMAGE = {"gb10_runtime": "container", "gb10_container_image": IMAGE}
THOR = {
    "gpu": {
        "gpus": [{"name": "NVIDIA Thor", "capability": "11.0"}],
        "driver_version": "580.00",
        "memory_bytes": 128 * 10**9,
        "reason": "",
    }
}
#: As the locks of the collection.
WITH_LOADER = lock_of("vllm==0.32.0", "ray==2.60.0", "instanttensor==0.2.2")
STOCK_NCCL = {"nccl_sm121_build_enabled": "false"}
SOCKETS = {"gb10_fabric_topology": "socket", "gb10_fabric_interface": "enp1s0f1np1"}


@dataclass(frozen=True)
class Case:
    """A cluster: its variables, the facts of all nodes and of the second one, and the pins of its lock."""

    settings: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    second: dict[str, Any] = field(default_factory=dict)
    count: int = 2
    lock: str = WITH_LOADER

    def nodes(self) -> list[Node]:
        settings = {"gb10_model": GPT_OSS, **self.settings}
        nodes = [spark(number, "worker" if number > 1 else "head", **settings) for number in range(1, self.count + 1)]
        for index, node in enumerate(nodes):
            node["observed"] |= {"model": None, **self.facts, **(self.second if index == 1 else {})}
        return nodes

    def findings(self) -> dict[str, list[str]]:
        """Return by rule the plan's findings, and the refusals by a rule."""
        plan, problems = cluster_plan.plan(parse(self.nodes(), self.lock), KNOWN)
        lines = list(plan.serve.findings) if plan else []
        found: dict[str, list[str]] = {}
        for line in lines:
            found.setdefault(line.split()[1].rstrip(","), []).append(line)
        for problem in problems:
            match = re.search(rf"{WAIVERS}\.([\w-]+)$", problem.fix)
            found.setdefault(match[1] if match else "refused", []).append(str(problem))
        return found


def args(*words: str, **settings: Any) -> dict[str, Any]:
    return {"gb10_vllm_extra_args": list(words), **settings}


def env(**variables: str) -> dict[str, Any]:
    return {"gb10_extra_env": variables}


def updates(level: str) -> dict[str, Any]:
    return {"updates": asdict(State("6.17.0-1031-nvidia", Level(level)))}


def release(version: str) -> str:
    return lock_of(f"vllm=={version}", "ray==2.60.0")


GPU = {"gpus": [{"name": "NVIDIA GB10", "capability": "12.1"}], "memory_bytes": 128_526_000_000, "reason": ""}

DRAFT = args("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}')
EXPANDABLE = env(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
#: By rule: a cluster whose plan has the finding.
CASES: dict[str, Case] = {
    "memory-utilization-ceiling": Case({"gb10_memory_reserve": 8, "gb10_kv_cache_contexts": 0}, count=1),
    "memory-utilization-high": Case({"gb10_model": UNREAD, **args("--gpu-memory-utilization", "0.88")}),
    "model-size-unknown": Case({"gb10_model": UNREAD}),
    "memory-utilization-replaced": Case(args("--gpu-memory-utilization", "0.86")),
    "loader-package": Case(args("--load-format", "fastsafetensors")),
    "fastsafetensors-ngc": Case({**NGC, **args("--load-format", "fastsafetensors")}),
    "fastsafetensors-large": Case(
        {
            "gb10_model": "large",
            "gb10_models": {"large": {"hub": UNREAD, "weights_bytes": 110 * 10**9}},
            **args("--load-format", "fastsafetensors"),
        },
        count=1,
        lock=lock_of("vllm==0.32.0", "ray==2.60.0", "fastsafetensors==0.5.0"),
    ),
    "mapped-weights": Case(args("--load-format=auto")),
    "prefill-decode-apart": Case(
        args("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}')
    ),
    "unequal-memory": Case(
        {"gb10_model": "gpt-oss-20b"}, second={"gpu": {**GPU, "driver_version": "580.142", "memory_bytes": 64 * 10**9}}
    ),
    "sleep-mode": Case(args("--enable-sleep-mode")),
    "autotune-cache": Case(args("--enable-flashinfer-autotune"), lock=release("0.28.0")),
    "flashinfer-autotune": Case(args("--enable-flashinfer-autotune")),
    "expandable-segments-connector": Case({**EXPANDABLE, **args("--kv-offloading-size", "8")}),
    "swap-space": Case(lock=release("0.17.1")),
    "page-cache-counted": Case({"vllm_serve_drop_caches": False}, lock=release("0.19.0")),
    "load-pressure": Case(lock=release("0.22.0")),
    "enforce-eager": Case(args("--enforce-eager")),
    "nccl-arm-hang": Case(STOCK_NCCL, lock=lock_of("vllm==0.32.0", "ray==2.60.0", "nvidia-nccl-cu13==2.28.9")),
    "breakable-cudagraph": Case(env(VLLM_USE_BREAKABLE_CUDAGRAPH="1"), lock=release("0.24.0")),
    "cudagraph-mode": Case(args("--compilation-config", '{"cudagraph_mode": "PIECEWISE"}')),
    "flashinfer-fp8": Case({"gb10_model": FP8, **args("--attention-backend", "FLASHINFER")}, lock=release("0.19.0")),
    "fp4-moe-path": Case({"gb10_model": NVFP4, **args("--moe-backend", "cutlass")}, lock=release("0.19.0")),
    "moe-backend-datacentre": Case(args("--moe-backend", "flashinfer_trtllm")),
    "moe-backend-triton-nvfp4": Case({"gb10_model": NVFP4, **args("--moe-backend", "triton")}),
    "linear-backend-strict": Case(args("--linear-backend", "triton"), lock=release("0.27.1")),
    "marlin-atomic-add": Case(
        {**args("--moe-backend", "marlin"), **env(VLLM_MARLIN_USE_ATOMIC_ADD="0")}, lock=release("0.19.0")
    ),
    "mxfp4-checkpoint": Case({"gb10_model": "qwen3.5-35b-a3b", **args("--quantization", "mxfp4")}),
    "fp8-cutlass": Case({"gb10_model": FP8, "vllm_patch_state": "absent"}, lock=release("0.19.0")),
    "max-tokens-reasoning": Case({"vllm_serve_smoke_tokens": 8}),
    "reasoning-parser": Case(
        {
            "gb10_model": "own",
            "gb10_models": {"own": {"hub": UNREAD, "reasoning": True, "config": {"model_type": "qwen3"}}},
        }
    ),
    "bridge-network": Case({**IN_IMAGE, "gb10_container_args": ["--network=bridge"]}),
    "nccl-ib-hca-unset": Case(env(NCCL_IB_HCA="")),
    "nccl-ib-hca-half": Case(env(NCCL_IB_HCA="=rocep1s0f1")),
    "nccl-gid-index": Case(env(NCCL_IB_GID_INDEX="3")),
    "roce-disabled": Case(env(NCCL_IB_DISABLE="1")),
    "tp-over-sockets": Case({**SOCKETS, "gb10_tensor_parallel_size": 2}),
    "tp-thor": Case({**SOCKETS, "gb10_tensor_parallel_size": 2}, second=THOR),
    "mixed-transport": Case({**SOCKETS, **env(NCCL_IB_DISABLE="0")}, second=THOR),
    "tensor-parallel-size": Case(
        {"gb10_model": UNREAD, "gb10_fabric_topology": "switch", "gb10_tensor_parallel_size": 3}, count=3
    ),
    "pipeline-speed": Case({"gb10_pipeline_parallel_size": 2}),
    "ring-environment": Case({"gb10_fabric_topology": "ring", **env(NCCL_IB_MERGE_NICS="1")}, count=3),
    "ring-nccl": Case(
        {"gb10_fabric_topology": "ring", **STOCK_NCCL},
        count=3,
        lock=lock_of("vllm==0.32.0", "ray==2.60.0", "nvidia-nccl-cu13==2.29.7"),
    ),
    "socket-interface": Case(env(GLOO_SOCKET_IFNAME="")),
    "gpudirect-rdma": Case(env(NCCL_NET_GDR_LEVEL="SYS")),
    "nccl-net-plugin": Case(OTHER_NGC),
    "nccl-cross-nic": Case(env(NCCL_CROSS_NIC="1")),
    "environment-differs": Case(
        IN_IMAGE,
        second={
            "additions": {
                "vllm_patch": {
                    "runtime": IMAGE,
                    "environment": {"VLLM_DISABLED_KERNELS": "CutlassNvFp4LinearKernel"},
                    "flags": [],
                    "files": {},
                }
            }
        },
    ),
    "idle-stall": Case({"gb10_fabric_topology": "switch", **DRAFT}, count=4, lock=release("0.27.1")),
    "driver-590": Case(facts={"gpu": {**GPU, "driver_version": "590.48.01"}}),
    "driver-old": Case(facts={"gpu": {**GPU, "driver_version": "580.82.07"}}),
    "driver-differs": Case(second={"gpu": {**GPU, "driver_version": "580.178.04"}}),
    "kernel-differs": Case(second={"kernel": "6.17.0-1032-nvidia"}),
    "os-level-differs": Case(facts=updates("7.5.0"), second=updates("7.6.0")),
    "kernel-cma": Case(facts={"cma_free_bytes": 9 * GIB}),
    "kernel-7-0-0-1019": Case(facts={"kernel": "7.0.0-1019-nvidia"}),
    "kernel-6-17-0-1008": Case(facts={"kernel": "6.17.0-1008-nvidia"}),
    "ray-memory-monitor": Case(env(RAY_memory_monitor_refresh_ms="250")),
    "ray-missing": Case({"gb10_stack": "ngc-26.04", "gb10_runtime_lock": ""}),
    "nnodes-ray": Case(args("--nnodes", "2")),
    "image-not-pinned": Case({"gb10_runtime": "container", "gb10_container_image": "eugr/spark-vllm:latest"}),
    "triton-ptxas": Case(OTHER_NGC),
    "thor-ptxas": Case({**SOCKETS, **args("--no-enforce-eager")}, second=THOR, lock=release("0.26.0")),
    "thor-kernels": Case(SOCKETS, second=THOR, lock=release("0.19.0")),
}


#: Rules that no plan can fire: variables from which the plan refuses or sets the value, and the command that a host
#: runs.
OUTSIDE: dict[str, tuple[Case, list[str], dict[str, str]]] = {
    "memory-utilization-default": (Case({"gb10_model": UNREAD}), [], {}),
    "host-ip": (Case(env(VLLM_HOST_IP="127.0.0.1")), ["--tensor-parallel-size", "2"], {"VLLM_HOST_IP": "127.0.0.1"}),
    "api-without-key": (Case({"gb10_api_host": "0.0.0.0", "gb10_api_key_enabled": False}), ["--host", "0.0.0.0"], {}),
    "api-key-in-argv": (Case(args("--api-key", "secret")), ["--api-key", "secret"], {}),
}
HOST = {
    "name": "spark1",
    "gpu": {**GPU, "driver_version": "580.142"},
    "kernel": "",
    "meminfo": "",
    "rdma": {},
    "nccl": "",
    "image": "",
    "network": "",
}


def test_every_rule_is_driven() -> None:
    assert sorted(CASES) == sorted(rule.id for rule in RULES if not rule.found_by)
    assert sorted(OUTSIDE) == sorted(rule.id for rule in RULES if rule.found_by)


def test_a_plain_pair_has_no_finding() -> None:
    assert Case().findings() == {}


@pytest.mark.parametrize("rule", CASES)
def test_a_plan_finds_it(rule: str) -> None:
    found = CASES[rule].findings()
    assert rule in found
    assert "refused" not in found


@pytest.mark.parametrize("rule", OUTSIDE)
def test_only_another_launch_has_it(rule: str) -> None:
    case, argv, environment = OUTSIDE[rule]
    assert rule not in case.findings()
    arguments, problems = vllm_release_checks.parse(argv, "0.32.0", path="argv")
    assert problems == []
    situation = context.of_host(arguments, environment, "0.32.0", HOST, None)
    assert rule in [finding.check.id for finding in lint(situation, {})]


@pytest.mark.parametrize("rule", [rule.id for rule in RULES if rule.found_by == VERIFY])
def test_a_verification_finds_it(rule: str) -> None:
    plant = {"api-without-key": lambda nodes: nodes[0]["facts"]["api"].update(open=True)}
    nodes = pair()
    plant[rule](nodes)
    assert list(findings(nodes)) == [rule]
