"""The memory plan, compared with what the vLLM that serves logs of its KV cache."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest
from cluster import Cluster
from served import ask, completion
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils import memory_plan, model_shape

#: Tokens of a block in vLLM's CPU build; on a GPU it is memory_plan's default.
CPU_BLOCK = 128
LOGGED = re.compile(r"([GC])PU KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")


@dataclass(frozen=True)
class Logged:
    """What vLLM says of its KV cache."""

    cpu: bool
    tokens: int
    context: int
    concurrency: float


def logged(head: Host) -> Logged:
    """Read the journal of the service as it runs now."""
    invocation = head.check_output("systemctl show --property=InvocationID --value gb10-vllm.service")
    found = LOGGED.findall(head.check_output(f"journalctl --no-pager --all --output=cat _SYSTEMD_INVOCATION_ID={invocation}"))
    assert found, "the service logged no size of its KV cache"
    device, tokens, context, concurrency = found[-1]
    return Logged(device == "C", int(tokens.replace(",", "")), int(context.replace(",", "")), float(concurrency))


def planned(cluster: Cluster, nodes: dict[str, Host], model: str, said: Logged) -> memory_plan.MemoryPlan:
    """Plan the folder's model on these nodes, with the KV bytes, type and context that the cluster's inventory gives vLLM."""
    head = next(iter(nodes.values()))
    arguments = cluster.variable("vllm_serve_args", [])
    environment = cluster.variable("gb10_environment", {})
    pipeline = cluster.variable("gb10_pipeline_parallel_size", 1)
    memory = {name: re.search(r"^MemTotal:\s+(\d+) kB", host.file("/proc/meminfo").content_string, re.MULTILINE) for name, host in nodes.items()}
    return memory_plan.plan(
        model_shape.shape(json.loads(head.file(f"{model}/config.json").content_string)),
        nodes=[
            {"name": name, "memory_bytes": int(found[1]) * 1024 if found else 0, "head": index == 0}
            for index, (name, found) in enumerate(memory.items())
        ],
        tensor=cluster.variable("gb10_tensor_parallel_size", 0) or len(nodes) // pipeline,
        pipeline=pipeline,
        weights_bytes=int(head.check_output(f"stat --format=%s {model}/model.safetensors")),
        dtype=arguments[arguments.index("--dtype") + 1],
        max_model_len=said.context,
        kv_cache_memory_bytes=int(environment["VLLM_CPU_KVCACHE_SPACE"]) * memory_plan.GIB,
        block=CPU_BLOCK,
    )


def assert_as_logged(cluster: Cluster, nodes: dict[str, Host], head: Host, model: str) -> None:
    said = logged(head)
    assert said.cpu
    found = planned(cluster, nodes, model, said)
    assert found.tokens == pytest.approx(said.tokens, rel=0.02), memory_plan.explain(found)
    assert found.concurrency == pytest.approx(said.concurrency, rel=0.02)


def test_vllm_has_as_much_kv_as_planned(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    assert_as_logged(cluster, nodes, head, cluster.variable("gb10_model", ""))


@pytest.mark.disruptive
def test_so_it_has_for_a_mixture_of_experts(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    model = "/srv/models/tiny-moe"
    try:
        cluster.site("--extra-vars", json.dumps({"gb10_model": model})).assert_ok()
        assert ask(head, "/v1/completions", {"model": "tiny-moe", "prompt": "Hello", "max_tokens": 4})["choices"][0]["text"].strip()
        assert_as_logged(cluster, nodes, head, model)
    finally:
        cluster.site().assert_ok()
    assert completion(head).strip()
