"""Compare the memory plan with the KV cache size in the running vLLM's log."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

import pytest
from live_cluster import Cluster, started
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import Inputs, MemoryNode, MemoryPlan
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape

#: Tokens per block in vLLM's CPU build. A GPU uses memory_plan's default.
CPU_BLOCK = 128
LOGGED = re.compile(
    r"([GC])PU KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x"
)


@dataclass(frozen=True)
class Logged:
    """vLLM's logged KV cache size."""

    cpu: bool
    tokens: int
    context: int
    concurrency: float


def logged(text: str) -> Logged:
    """Read the last KV cache size in vLLM's log."""
    found = LOGGED.findall(text)
    assert found, text
    device, tokens, context, concurrency = found[-1]
    return Logged(device == "C", int(tokens.replace(",", "")), int(context.replace(",", "")), float(concurrency))


def kv_cache_bytes(cluster: Cluster) -> int:
    """Return the inventory's KV cache bytes per rank."""
    arguments = cluster.variable("gb10_vllm_extra_args", [])
    return int(arguments[arguments.index("--kv-cache-memory-bytes") + 1])


def planned(cluster: Cluster, nodes: dict[str, Host], model: str, said: Logged) -> MemoryPlan:
    """Plan the directory's model over these nodes, with the KV bytes, type and context of the cluster's inventory."""
    head = next(iter(nodes.values()))
    arguments = cluster.variable("gb10_vllm_extra_args", [])
    pipeline = cluster.variable("gb10_pipeline_parallel_size", 0) or 1
    memory = {
        name: re.search(r"^MemTotal:\s+(\d+) kB", host.file("/proc/meminfo").content_string, re.MULTILINE)
        for name, host in nodes.items()
    }
    inputs = Inputs(
        model_shape.shape(json.loads(head.file(f"{model}/config.json").content_string)),
        nodes=[
            MemoryNode(name, index == 0, int(found[1]) * 1024 if found else 0)
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
    return memory_plan.plan(inputs)


def assert_as_logged(cluster: Cluster, nodes: dict[str, Host], model: str, said: Logged) -> None:
    assert said.cpu
    found = planned(cluster, nodes, model, said)
    assert found.tokens == pytest.approx(said.tokens, rel=0.02), memory_plan.explain(found)
    assert found.concurrency == pytest.approx(said.concurrency, rel=0.02)


def test_vllm_has_as_much_kv_as_planned(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    journal = head.check_output(f"journalctl --no-pager --all --output=cat _SYSTEMD_INVOCATION_ID={started(head)}")
    assert_as_logged(cluster, nodes, cluster.variable("gb10_model", ""), logged(journal))


#: A single rank in one process: it starts in a third of a server's time.
ALONE = """
from vllm import LLM
LLM({model!r}, enforce_eager=True, dtype="float32", max_model_len=1024, kv_cache_memory_bytes={kv_cache})
"""


@pytest.mark.slow
def test_so_it_has_for_a_mixture_of_experts(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    model, python = (
        "/srv/models/tiny-moe",
        f"{cluster.variable('gb10_install_dir', '/opt/gb10')}/runtime/current/bin/python",
    )
    program = shlex.quote(ALONE.format(model=model, kv_cache=kv_cache_bytes(cluster)))
    command = (
        f"set -a; . /etc/gb10/cluster.env; VLLM_ENABLE_V1_MULTIPROCESSING=0; cd /tmp; exec {python} -c {program} 2>&1"
    )
    # Root would leave Python's bytecode in the user's home.
    said = head.run("runuser --user=gb10 -- sh -c %s", command)
    name, first = next(iter(nodes.items()))
    assert_as_logged(cluster, {name: first}, model, logged(said.stdout))
