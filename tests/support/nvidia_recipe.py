"""A recipe in the schemas of NVIDIA's catalog, written here: its commands are shell texts for terminals on each node."""

from __future__ import annotations

import copy
from typing import Any

EXPORTS = """\
# Of both ranks
export VLLM_USE_V2_MODEL_RUNNER="1" # since 0.28
export B12X_MOE_FORCE_A8=1
"""
SERVE = """\
vllm serve owner/small-nvfp4 \\
  --host 0.0.0.0 \\
  --port 8000 \\
  --tensor-parallel-size 2 \\
  --max-model-len auto \\
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}' \\
  --nnodes 2 \\
  --node-rank 0 \\
  --master-addr "$HEAD_IP" \\
  --master-port "${MASTER_PORT}"\
"""
SETUP = """\
# Adjust to your network
export HEAD_IP="<address of the head>"
export IMAGE="owner/vllm:nightly"
export HF_CACHE_DIR="$HOME/.cache/huggingface"
mkdir -p "$HF_CACHE_DIR"

docker run --rm -it \\
  --privileged \\
  -e HF_TOKEN=$HF_TOKEN \\
  -e NCCL_SOCKET_IFNAME="$ETH_IF" \\
  -e NCCL_IGNORE_CPU_AFFINITY=1 \\
  --env VLLM_FLOAT32_MATMUL_PRECISION=high \\
  -e MASTER_PORT="$MASTER_PORT" \\
  -v ~/.cache/vllm:/cache \\
  --entrypoint /bin/bash \\
  "$IMAGE"
"""
WORKER = EXPORTS + SERVE.replace("rank 0", "rank 1") + " \\\n  --headless\n"


def recipe(**changes: Any) -> dict[str, Any]:
    """Return the recipe for two Sparks with other values; a name's double underscore separates keys."""
    data: dict[str, Any] = {
        "schema_version": 3,
        "title": "Small on 2 Sparks",
        "hardware": "dgx-spark-2gpu",
        "backend": "vllm",
        "precision": {"label": "NVFP4"},
        "topology": {"node_count": 2},
        "runtime": {"kind": "container", "image": "owner/vllm:nightly", "setup_command": SETUP},
        "serve": {"command": EXPORTS + SERVE, "additional_commands": [{"id": "worker", "command": WORKER}]},
    }
    data = copy.deepcopy(data)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for parent in parents:
            place = place[parent]
        place[last] = value
    return data
