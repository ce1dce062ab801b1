# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tune the experts of two ranks three times: with an empty cache of FlashInfer's autotuner, with the cache of that time,
and with a new one, as the plan does for vLLM 0.27 to 0.31.

    python3 tests/gpu/autotune.py --python PYTHON --warmup vllm/model_executor/warmup/kernel_warmup.py --folder F

PYTHON has PyTorch and FlashInfer. The ranks run the function flashinfer_autotune of that file of vLLM, which needs no
installed vLLM: its world is a process group of gloo, and its dummy run tunes one operation, whose key has the rank's
number, as that of FlashInfer's experts has. Its kernels take more than an hour to compile, so PyTorch multiplies in
their place. Each rank has its own GPU if there are two. One is enough, because their timings meet over gloo. F gets the
logs, report.json and report.md. The exit status is 1 if the first or the last time fails.
"""

from __future__ import annotations

import argparse
import ast
import logging
import os
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

from adhoc import conclude, gpus, parsed, parser

FUNCTION = "flashinfer_autotune"
OPERATION, TOKENS, HIDDEN, EXPERTS, SIZE = "trtllm::fused_moe::gemm1", 64, 1024, 16, 512


def main() -> None:
    given = parser(__doc__, "for the caches, the logs and the reports")
    given.add_argument("--python", help="an interpreter with PyTorch and FlashInfer")
    given.add_argument("--warmup", required=True, type=Path, help="the file of vLLM with flashinfer_autotune")
    given.add_argument("--limit", type=float, default=120, help="seconds of a time that compiles nothing")
    given.add_argument("--first-limit", type=float, default=540, help="seconds of the first time")
    given.add_argument("--cache", type=Path, help="for a rank: the file of its cache")
    options = parsed(given)
    if options.cache:
        tune(options.warmup, options.cache)
    else:
        conclude(options.folder, "Two ranks with a cache of FlashInfer's autotuner", measured(options))


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: the GPU, the releases, and each time."""
    times = {
        "an empty cache": both(options, "kept", options.first_limit),
        "its cache": both(options, "kept", options.limit),
        "a new cache": both(options, "new", options.limit),
    }
    ask = "import flashinfer, torch; print(flashinfer.__version__, torch.__version__)"
    done = subprocess.run([options.python, "-c", ask], capture_output=True, text=True, check=True)
    checks = {
        f"the tuning with {name} ends": bool(times[name]["seconds"]) for name in ("an empty cache", "a new cache")
    }
    return {"gpus": gpus(), "releases": done.stdout.split(), "times": times, "checks": checks}


def both(options: argparse.Namespace, name: str, limit: float) -> dict[str, Any]:
    """Run both ranks. Return their seconds, 0 without an end, and the last lines of each."""
    cache = options.folder / name / "autotune_configs.json"
    cache.parent.mkdir(exist_ok=True)
    command = [options.python, __file__, f"--folder={options.folder}", f"--warmup={options.warmup}", f"--cache={cache}"]
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", "GLOO_SOCKET_IFNAME": "lo"}
    logs = [options.folder / f"{name}-{int(time.time())}-{rank}.log" for rank in range(2)]
    began = time.monotonic()
    ranks = [
        subprocess.Popen(
            command, env=os.environ | world | {"RANK": str(rank)}, stdout=log.open("wb"), stderr=subprocess.STDOUT
        )
        for rank, log in enumerate(logs)
    ]
    ended: list[int | None] = []
    for rank in ranks:
        try:
            ended.append(rank.wait(max(0.1, limit - (time.monotonic() - began))))
        except subprocess.TimeoutExpired:
            ended.append(None)
    seconds = time.monotonic() - began
    for rank in ranks:
        rank.kill()
        rank.wait()
    ends = [log.read_text(encoding="utf-8", errors="replace").splitlines()[-4:] for log in logs]
    return {"seconds": round(seconds, 1) if ended == [0, 0] else 0, "ended": ended, "logs": ends}


def tune(warmup: Path, cache: Path) -> None:
    """Run vLLM's own function as a rank."""
    import flashinfer.autotuner  # type: ignore[import-not-found]  # noqa: PLC0415  # Only the ranks have it.
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415
    import torch.distributed as dist  # type: ignore[import-not-found]  # noqa: PLC0415
    from flashinfer.autotuner import TuningConfig  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    log = logging.getLogger("rank")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.cuda.set_device(rank % torch.cuda.device_count())

    class World:
        rank_in_group, world_size, cpu_group = rank, 2, dist.group.WORLD

        def broadcast_object(self, value: Any, src: int) -> Any:
            values = [value]
            dist.broadcast_object_list(values, src)
            return values[0]

        def barrier(self) -> None:
            dist.barrier()

    class Experts(flashinfer.autotuner.TunableRunner):  # type: ignore[misc]  # It is known there.
        """Multiplications whose key names the rank, as that of FlashInfer's own experts does (fused_moe/core.py)."""

        def get_valid_tactics(self, _inputs: Any, _profile: Any) -> list[int]:
            return [0, 1, 2]

        def get_cache_key_extras(self, inputs: Any) -> tuple[Any, ...]:
            return str(inputs[0].dtype), 2, rank

        # The tuner names its arguments.
        def forward(self, inputs: Any, tactic: int = -1, do_preparation: bool = False) -> Any:  # noqa: ARG002
            return torch.bmm(*inputs)

    def experts(_runner: Any) -> None:
        made = {"device": "cuda", "dtype": torch.bfloat16}
        inputs = [torch.randn(EXPERTS, TOKENS, HIDDEN, **made), torch.randn(EXPERTS, HIDDEN, SIZE, **made)]
        log.info("rank %d tunes the experts", rank)
        flashinfer.autotuner.AutoTuner.get().choose_one(OPERATION, [Experts()], TuningConfig(), inputs)
        log.info("rank %d has tuned the experts", rank)

    def write(path: Path, contents: bytes) -> None:
        path.write_bytes(contents)

    log.info_once = log.info  # type: ignore[attr-defined]
    world = World()
    sys.modules |= {
        "vllm": types.ModuleType("vllm"),
        "vllm.utils": types.ModuleType("vllm.utils"),
        "vllm.utils.flashinfer": types.SimpleNamespace(autotune=flashinfer.autotuner.autotune),  # type: ignore[dict-item]
        "vllm.distributed": types.ModuleType("vllm.distributed"),
        "vllm.distributed.parallel_state": types.SimpleNamespace(get_world_group=lambda: world),  # type: ignore[dict-item]
    }
    sys.modules["vllm"].utils = sys.modules["vllm.utils"]  # type: ignore[attr-defined]
    sys.modules["vllm.utils"].flashinfer = sys.modules["vllm.utils.flashinfer"]  # type: ignore[attr-defined]
    given = {
        "torch": torch,
        "logger": log,
        "_flashinfer_autotune_skip_ops": lambda _runner: None,
        "_run_flashinfer_autotune_dummy_runs": experts,
        "resolve_flashinfer_autotune_file": lambda _runner: cache,
        "write_flashinfer_autotune_cache": write,
        "GPUModelRunner": object,
    }
    tree = ast.parse(warmup.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == FUNCTION]
    exec(compile(tree, str(warmup), "exec"), given)  # The point of the test.
    given[FUNCTION](None)
    log.info("rank %d ends", rank)


if __name__ == "__main__":
    main()
