"""The memory plan, compared with what the vLLM that serves logs of its KV cache."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

import pytest
from live_cluster import Cluster
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape

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


def logged(text: str) -> Logged:
    """Read the last size that vLLM logged."""
    found = LOGGED.findall(text)
    assert found, text
    device, tokens, context, concurrency = found[-1]
    return Logged(device == "C", int(tokens.replace(",", "")), int(context.replace(",", "")), float(concurrency))


def kv_cache_bytes(cluster: Cluster) -> int:
    """The bytes of KV cache that the inventory gives each rank."""
    arguments = cluster.variable("gb10_vllm_extra_args", [])
    return int(arguments[arguments.index("--kv-cache-memory-bytes") + 1])


def planned(cluster: Cluster, nodes: dict[str, Host], model: str, said: Logged) -> memory_plan.MemoryPlan:
    """Plan the folder's model over these nodes, with the KV bytes, type and context that the cluster's inventory gives vLLM."""
    head = next(iter(nodes.values()))
    arguments = cluster.variable("gb10_vllm_extra_args", [])
    pipeline = cluster.variable("gb10_pipeline_parallel_size", 0) or 1
    memory = {name: re.search(r"^MemTotal:\s+(\d+) kB", host.file("/proc/meminfo").content_string, re.MULTILINE) for name, host in nodes.items()}
    return memory_plan.plan(
        model_shape.shape(json.loads(head.file(f"{model}/config.json").content_string)),
        nodes=[
            {"name": name, "memory_bytes": int(found[1]) * 1024 if found else 0, "head": index == 0}
            for index, (name, found) in enumerate(memory.items())
        ],
        tensor=len(nodes) // pipeline,
        pipeline=pipeline,
        weights_bytes=int(head.check_output(f"stat --format=%s {model}/model.safetensors")),
        dtype=arguments[arguments.index("--dtype") + 1],
        max_model_len=said.context,
        kv_cache_memory_bytes=kv_cache_bytes(cluster),
        block=CPU_BLOCK,
    )


def assert_as_logged(cluster: Cluster, nodes: dict[str, Host], model: str, said: Logged) -> None:
    assert said.cpu
    found = planned(cluster, nodes, model, said)
    assert found.tokens == pytest.approx(said.tokens, rel=0.02), memory_plan.explain(found)
    assert found.concurrency == pytest.approx(said.concurrency, rel=0.02)


def test_vllm_has_as_much_kv_as_planned(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    invocation = head.check_output("systemctl show --property=InvocationID --value gb10-vllm.service")
    journal = head.check_output(f"journalctl --no-pager --all --output=cat _SYSTEMD_INVOCATION_ID={invocation}")
    assert_as_logged(cluster, nodes, cluster.variable("gb10_model", ""), logged(journal))


#: A rank alone, in one process: a third of what a server of its own takes to start.
ALONE = """
from vllm import LLM
LLM({model!r}, enforce_eager=True, dtype="float32", max_model_len=1024, kv_cache_memory_bytes={kv_cache})
"""


def test_so_it_has_for_a_mixture_of_experts(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    model, python = "/srv/models/tiny-moe", f"{cluster.variable('gb10_install_dir', '/opt/gb10')}/runtime/current/bin/python"
    program = shlex.quote(ALONE.format(model=model, kv_cache=kv_cache_bytes(cluster)))
    command = f"set -a; . /etc/gb10/cluster.env; VLLM_ENABLE_V1_MULTIPROCESSING=0; cd /tmp; exec {python} -c {program} 2>&1"
    # Root would leave what Python compiles in the user's own folder.
    said = head.run("runuser --user=gb10 -- sh -c %s", command)
    name, first = next(iter(nodes.items()))
    assert_as_logged(cluster, {name: first}, model, logged(said.stdout))
