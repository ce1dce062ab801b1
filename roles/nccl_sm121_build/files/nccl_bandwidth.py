# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure how fast collectives move data between processes: one on each node, all started within the timeout, with the
same arguments.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.100.0.1 MASTER_PORT=29510 python nccl_bandwidth.py --bytes 1073741824

Needs only PyTorch, no MPI. The last line on stdout is one JSON object:
{"rank", "ranks", "backend", "torch", "results": [{"collective", "bytes", "seconds", "bus_gbps"}]}. Seconds are for one
call, of the rank with the longest average; bus_gbps is bus bandwidth in 10^9 bytes a second. The first result of each
collective is verified. The process ends when its stdin closes, so its parent can inspect it before.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

#: The factor between message sizes, and the smallest size.
STEP, SMALLEST = 8, 4096
WARM_UP = 5
#: Sizes of the all-reduces of a decode step, whose latency counts, and how many more calls each has.
SMALL, MORE = (8, 1024, 10240, 65536), 10


def sizes(largest: int, ranks: int) -> list[int]:
    """Return message sizes in bytes, largest last, each a multiple of one 4-byte value per rank."""
    unit = 4 * ranks
    found = [largest]
    while found[-1] // STEP >= SMALLEST:
        found.append(found[-1] // STEP)
    return [max(size // unit, 1) * unit for size in reversed(found)]


def small(largest: int, ranks: int) -> list[int]:
    """Return the sizes in SMALL below the largest message, each a multiple of one 4-byte value per rank."""
    unit = 4 * ranks
    return sorted({max(size // unit, 1) * unit for size in SMALL if size < largest} - {*sizes(largest, ranks)})


def bus_factor(collective: str, ranks: int) -> float:
    """Return the factor from size/time to bus bandwidth.

    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md; all_gather's size is its result's.
    """
    return {"all_reduce": 2.0, "all_gather": 1.0}[collective] * (ranks - 1) / ranks


def prepare(collective: str, size: int, device: torch.device) -> tuple[Callable[[], None], Callable[[], bool]]:
    """Return a function that runs the collective once, and a function that verifies its first result."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = torch.full((size // 4,), float(rank + 1), device=device)
    if collective == "all_reduce":
        return lambda: dist.all_reduce(whole), lambda: bool((whole == ranks * (ranks + 1) / 2).all())
    part = whole[: size // 4 // ranks].clone()
    expected = torch.arange(1, ranks + 1, device=device, dtype=whole.dtype)
    return lambda: dist.all_gather_into_tensor(whole, part), lambda: bool(
        (whole.view(ranks, -1) == expected[:, None]).all()
    )


def measure(collective: str, size: int, iterations: int, device: torch.device) -> dict[str, object]:
    """Return one entry of the results. Raises RuntimeError for a wrong result."""

    def settle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    call, right = prepare(collective, size, device)
    call()
    if not right():
        raise RuntimeError(f"{collective} of {size} bytes gave a wrong result")
    for _call in range(WARM_UP):
        call()
    settle()
    dist.barrier()
    began = time.perf_counter()
    for _call in range(iterations):
        call()
    settle()
    slowest = torch.tensor([(time.perf_counter() - began) / iterations], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    seconds = float(slowest)
    return {
        "collective": collective,
        "bytes": size,
        "seconds": seconds,
        "bus_gbps": size / seconds * bus_factor(collective, dist.get_world_size()) / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1024**3, help="the largest message; 16 GiB froze a node")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo needs no GPU")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--timeout", type=int, default=120, help="seconds for the ranks to meet, and for each call")
    options = parser.parse_args()
    device = torch.device("cpu")
    if options.backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, timeout=datetime.timedelta(seconds=options.timeout))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    results = [
        measure(collective, size, options.iterations * (MORE if size <= SMALL[-1] else 1), device)
        for collective in ("all_reduce", "all_gather")
        for size in sorted(
            {*sizes(options.bytes, ranks), *(small(options.bytes, ranks) if collective == "all_reduce" else ())}
        )
    ]
    dist.barrier()
    dist.destroy_process_group()
    report = {"rank": rank, "ranks": ranks, "backend": options.backend, "torch": torch.__version__, "results": results}
    sys.stdout.write(f"\n{json.dumps(report)}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
