"""NVIDIA's recipes in a plan: each rank gets the arguments and variables that the recipe's terminals give it."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from cluster_nodes import node_plan, planned, sparks
from nvidia_recipe import SETUP, recipe
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import NETWORK

#: docs/recipes.md lists what differs: the API, the addresses and the parallel sizes, which are equal in another form,
#: the names of model and draft, and the memory, if the plan knows the model.
OWN = {
    *("--host", "--port", "--middleware", "--served-model-name", "--distributed-executor-backend"),
    *("--nnodes", "--node-rank", "--master-addr", "--master-port", "--headless", "--tensor-parallel-size"),
    *("--pipeline-parallel-size", "--gpu-memory-utilization", "--kv-cache-memory-bytes"),
}
#: What an unprivileged rank with a planned network has besides.
OWN_VARIABLES = {
    "HF_HUB_OFFLINE",
    "VLLM_HOST_IP",
    "VLLM_NO_USAGE_STATS",
    "TRITON_CACHE_DIR",
    "TORCH_CUDA_ARCH_LIST",
    "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR",
}
TERMINAL = ("HF_TOKEN", "HEAD_IP", "MASTER_PORT", "NODE_RANK")
DRAFTED = """\
vllm serve nvidia/Qwen3.8-27B-NVFP4 \\
  --host 0.0.0.0 --port 8000 \\
  --trust-remote-code \\
  --kv-cache-dtype fp8 \\
  --gpu-memory-utilization 0.8 \\
  --max-model-len 131072 --max-num-seqs 8 --max-num-batched-tokens 16384 \\
  --enable-chunked-prefill --async-scheduling \\
  --speculative-config '{"method":"dflash","model": "z-lab/Qwen3.8-27B-DFlash2","num_speculative_tokens":8}' \\
  --load-format safetensors --reasoning-parser qwen3 --tool-call-parser qwen3_xml --enable-auto-tool-choice"""
UNKNOWN = """\
# A model that the catalog does not have
vllm serve owner/unknown-fp4 --port 8000 --gpu-memory-utilization 0.85 --moe-backend flashinfer_b12x \\
  --speculative-config.method mtp --speculative-config.num_speculative_tokens 3 \\
  --compilation-config '{"mode": 3, "cudagraph_mode": "FULL_DECODE_ONLY"}'"""
EXPORTS = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nexport B12X_MOE_FORCE_A8='1'\n\n"
HARDWARE = {1: "dgx-spark", 2: "dgx-spark-2gpu", 4: "dgx-spark-4gpu"}


def of_sparks(count: int, command: str, exports: str) -> dict[str, Any]:
    """Return a recipe in the form of that number of Sparks: each rank has the whole command again."""
    ranks = ""
    if count > 1:
        ranks = f" \\\n  --tensor-parallel-size {count} --nnodes {count} --node-rank $NODE_RANK"
        ranks += ' \\\n  --master-addr "$HEAD_IP" --master-port "$MASTER_PORT"'
    worker = {"id": "worker", "target": "workers", "command": f"{exports}{command}{ranks} \\\n  --headless\n"}
    return recipe(
        schema_version=4,
        hardware=HARDWARE[count],
        topology__node_count=count,
        serve={"command": f"{exports}{command}{ranks}\n", "additional_commands": [worker] if count > 1 else None},
    )


def of_terminals(data: Mapping[str, Any], number: int) -> tuple[list[list[str]], dict[str, str]]:
    """Return the options and the variables that the terminals of node ``number`` give its rank, as a shell does."""
    serve = data["serve"]
    text = serve["command"] if number == 1 else serve["additional_commands"][0]["command"]
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    start = words.index("vllm")
    exported = dict(word.split("=", 1) for word in words[:start] if "=" in word)
    run = shlex.split(SETUP[SETUP.index("docker run") :].replace("\\\n", " "))
    given = [pair for option, pair in itertools.pairwise(run) if option in ("-e", "--env")]
    variables = {**dict(pair.split("=", 1) for pair in given), **exported}
    options = [values for _name, _given, values in arguments.options(words[start + 3 :])]
    return options, {name: value for name, value in variables.items() if name not in TERMINAL}


@pytest.mark.parametrize("exports", ["", EXPORTS], ids=["", "exports"])
@pytest.mark.parametrize("command", [DRAFTED, UNKNOWN], ids=["drafted", "unknown"])
@pytest.mark.parametrize("count", HARDWARE)
def test_each_rank_gets_what_the_terminals_give_it(count: int, command: str, exports: str) -> None:
    data = of_sparks(count, command, exports)
    nodes = sparks(count, gb10_model="", gb10_recipe="x")
    for node in nodes:
        node["observed"]["model"] = None
    plan = planned(nodes, recipe=data)
    folders = {draft["folder"]: draft["hub"] for draft in plan["drafts"]}
    model = command.partition("vllm serve ")[2].split(maxsplit=1)[0]
    for number, node in enumerate(plan["nodes"], start=1):
        rank = typed(node_plan(plan, node["name"]))
        started = launch_argv.vllm_argv(rank)
        options = [values for _name, _given, values in arguments.options(started[3:])]
        wanted, variables = of_terminals(data, number)
        assert _compared(options, folders) == _compared(wanted, folders), f"rank {number - 1}"
        assert (f"--served-model-name={model}" in started, "--headless" in started) == (True, number > 1)
        assert f"--tensor-parallel-size={count}" in started
        assert len([word for word in started if word.startswith("--gpu-memory-utilization")]) == 1
        environment = overrides.rank_environment(rank.node)
        own = {name for name in environment if NETWORK.fullmatch(name) or name.startswith("RAY_")} | OWN_VARIABLES
        kept = {name: value for name, value in variables.items() if not NETWORK.fullmatch(name)}
        assert {name: value for name, value in environment.items() if name not in own} == kept


def _compared(options: list[list[str]], folders: Mapping[str, str]) -> list[str]:
    """Return the options in one form, sorted, without the own ones and with the names of stored drafts."""
    found = []
    for words in options:
        text = " ".join(words).replace("=", " ", 1)
        for folder, hub in folders.items():
            text = text.replace(folder, hub)
        if text.split(" ")[0] not in OWN:
            found.append(re.sub(r"(?<=[:,]) ", "", text))
    return sorted(found)
