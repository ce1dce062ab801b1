# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables that a process of a Python environment needs to find its programs and the CUDA compiler.

Units, queries of the runtime, the GPU probe and the compilation of kernels get them. A container's image has its own.
"""

from __future__ import annotations

import re

#: systemd's PATH for units. Source: systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager".
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The largest memory of one compiler process, in GiB: 6.9 for FlashInfer 0.7.2 and 12.1, see docs/benchmarks.md.
JOB_GIB = 7
#: The first release of vLLM that tunes all ranks together, and the first that requires equal caches.
SHARED, SYNCHRONIZED = (0, 27), (0, 32)
AUTOTUNE_FOLDER = "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"
#: Compilers next to a loaded model. They share the memory that the plan leaves to the host.
RANK_JOBS = 2


def environment(runtime: str, cuda_home: str, jobs: int) -> dict[str, str]:
    """Return PATH, CUDA_HOME and MAX_JOBS for the environment ``runtime``, without a compiler if ``cuda_home`` is "".

    FlashInfer runs ``ninja`` from PATH, and CUDA_HOME's nvcc with MAX_JOBS processes, else with one for each core. The
    toolkit is the system's, because its compiler and headers are of one release. Source: flashinfer 0.7.2,
    jit/cpp_ext.py.
    """
    folders = [f"{runtime}/bin", *([f"{cuda_home}/bin"] if cuda_home else []), SYSTEM_PATH]
    compiler = {"CUDA_HOME": cuda_home, "MAX_JOBS": str(jobs)} if cuda_home else {}
    return {"PATH": ":".join(folders), **compiler}


def tuning(release: str, ranks: int, cuda: bool) -> dict[str, str]:
    """Return the variable for a cache of FlashInfer's autotuning that does not survive a start, {} if it may.

    vLLM 0.27 to 0.31 sends rank 0's cache to all ranks, which tune together. Its entries of experts have the rank in
    their key, so that one rank skips a step for which the others wait. The unit's and the container's /tmp are new at
    each start. Source: vllm-project/vllm#57423; vLLM 0.24 to 0.33, model_executor/warmup/kernel_warmup.py.
    """
    known = re.match(r"(\d+)\.(\d+)", release)
    shared = known is None or SHARED <= (int(known[1]), int(known[2])) < SYNCHRONIZED
    return {AUTOTUNE_FOLDER: "/tmp/gb10-flashinfer-autotune"} if cuda and ranks > 1 and shared else {}


def jobs(available: int, cores: int) -> int:
    """Return the number of compiler processes for ``available`` bytes, half of them kept free; at least one."""
    return max(1, min(cores, available // 2 // (JOB_GIB << 30)))
