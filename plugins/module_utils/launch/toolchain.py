# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables with which a process of a Python environment finds its programs and the CUDA compiler.

Units, queries of the runtime, the GPU probe and the compilation of kernels get them. A container's image has its own.
"""

from __future__ import annotations

#: systemd's PATH for units. Source: systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager".
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The largest memory of one compiler process, in GiB: 6.9 for FlashInfer 0.7.2 and 12.1, see docs/benchmarks.md.
JOB_GIB = 7
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


def jobs(available: int, cores: int) -> int:
    """Return the number of compiler processes for ``available`` bytes, of which half stay free; at least one."""
    return max(1, min(cores, available // 2 // (JOB_GIB << 30)))
