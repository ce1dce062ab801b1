# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a vLLM of two ranks three times: with an empty cache of FlashInfer's autotuner, with the cache of that start,
and with a new one, as the plan does for vLLM 0.27 to 0.31.

    python3 tests/gpu/autotune.py --python /var/tmp/vllm/bin/python --tokenizer /var/tmp/tiny --folder /var/tmp/proof

PYTHON belongs to an environment with vLLM and FlashInfer. TOKENIZER has a tokenizer.json. The weights are random, and
the experts run by FlashInfer's CUTLASS kernels. Needs two GPUs and a CUDA toolkit. FOLDER gets the logs, report.json and
report.md. The exit status is 1 if the first or the last start fails.

Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from adhoc import URL, conclude, gpus, parsed, parser, running, until_healthy

#: Of a size that FlashInfer's kernels take.
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
ARGUMENTS = [
    *("--load-format=dummy", "--tensor-parallel-size=2", "--max-model-len=1024", "--gpu-memory-utilization=0.3"),
    *("--enforce-eager", "--moe-backend=flashinfer_cutlass", "--enable-flashinfer-autotune"),
    *("--host=127.0.0.1", "--port=8000"),
]
LINES = re.compile(r"^.*(?:autotun|Autotun|broadcast block|Application startup complete).*$", re.MULTILINE)


def main() -> None:
    given = parser(__doc__, "for the model, the caches, the logs and the reports")
    given.add_argument("--python", required=True, help="the interpreter of an environment with vLLM")
    given.add_argument("--tokenizer", required=True, type=Path, help="a folder with a tokenizer")
    given.add_argument("--limit", type=float, default=240, help="seconds of a start without an answer")
    given.add_argument("--first-limit", type=float, default=540, help="seconds of the first start, which compiles")
    options = parsed(given)
    conclude(options.folder, measured(options), section)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: the GPUs, the releases, and each start."""
    model = options.folder / "model"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(options.tokenizer, model, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    vocabulary = json.loads((options.tokenizer / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    (model / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": vocabulary}), encoding="utf-8")
    for name in ("kept", "new"):
        shutil.rmtree(options.folder / name, ignore_errors=True)
    starts = {
        "empty cache": start(options, "kept", options.first_limit),
        "its cache": start(options, "kept", options.limit),
        "a new cache": start(options, "new", options.limit),
    }
    ask = "from importlib.metadata import version as v; print(v('vllm'), v('flashinfer-python'), v('torch'))"
    releases = subprocess.run([options.python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    checks = {f"a start with {name} answers": bool(starts[name]["seconds"]) for name in ("empty cache", "a new cache")}
    return {"gpus": gpus(), "releases": releases, "starts": starts, "checks": checks}


def start(options: argparse.Namespace, cache: str, limit: float) -> dict[str, Any]:
    """Start the server. Return its seconds, 0 without an answer, and its lines about the tuning."""
    log = options.folder / f"{cache}-{int(time.time())}.log"
    environment = {
        **os.environ,
        "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": str(options.folder / cache),
        "VLLM_CACHE_ROOT": str(options.folder / "vllm"),
        "VLLM_USE_DEEP_GEMM": "0",
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [options.python, "-m", "vllm.entrypoints.cli.main", "serve", str(options.folder / "model"), *ARGUMENTS]
    with running(command, environment, log) as process:
        try:
            seconds, ended = until_healthy(URL, [process], limit), ""
        except RuntimeError as error:
            seconds, ended = 0.0, str(error)
    text = log.read_text(encoding="utf-8", errors="replace")
    found = [line[:200] for line in LINES.findall(text)]
    return {"seconds": round(seconds, 1), "ended": ended, "lines": found[:40], "end": text[-1500:] if ended else ""}


def section(report: dict[str, Any]) -> str:
    """Return the section for docs/benchmarks.md."""
    rows = "".join(
        f"| {name} | {each['seconds'] or each['ended']} | {sum('unning FlashInfer autotune' in line for line in each['lines'])} |\n"
        for name, each in report["starts"].items()
    )
    vllm, flashinfer, torch = report["releases"]
    return f"""## Starts of two ranks with a cache of FlashInfer's autotuner

`tests/gpu/autotune.py` on {time.strftime("%Y-%m-%d")}: {len(report["gpus"])} GPUs ({report["gpus"][0]}), vLLM {vllm}, FlashInfer {flashinfer}, PyTorch {torch}.

| start with | healthy after, s | lines "Running FlashInfer autotune" |
|---|--:|--:|
{rows}"""


if __name__ == "__main__":
    main()
