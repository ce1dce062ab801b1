# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL's device functions: which ones vLLM calls, and the build option ONLY_FUNCS, which leaves out all others.

The option was made for developers of NCCL. What it leaves out is not refused at run time: the entry of the table of functions is
`ncclDevFunc_Nop`, which does nothing (src/device/generate.py, src/device/common.cu), so a collective that is missing returns at once with
whatever was in the buffer. Hence it is off unless asked for, and a library built so is for the one program whose calls are known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: Which algorithms each collective has; SendRecv has none. Source: src/device/generate.py of 2.30.7.
_MOVES = {"AllGather": ("RING", "COLLNET_DIRECT", "NVLS", "PAT"), "AllGatherV": ("RING",), "Broadcast": ("RING",)}
_REDUCES = {
    "AllReduce": ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE"),
    "Reduce": ("RING",),
    "ReduceScatter": ("RING", "COLLNET_DIRECT", "NVLS", "PAT"),
}
_OPERATIONS = ("Sum", "Prod", "MinMax", "PreMulSum", "SumPostDiv")
_TYPES = ("i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


@dataclass(frozen=True)
class Use:
    """A collective that vLLM calls on GPU tensors. ``types`` is empty where NCCL only moves bytes. ``calls`` are files and lines of vLLM 0.32.0."""

    collective: str
    operation: str
    types: tuple[str, ...]
    calls: tuple[str, ...]


_MODEL_TYPES = ("bf16", "f16", "f32")
#: Taken from vLLM 0.32.0 by reading every call of PyNcclCommunicator and of torch.distributed with a device group. What runs in CPU groups (Gloo),
#: in ROCm's, XPU's and CPU's communicators, in weight transfer from a trainer, and in single models' own files is not in it.
USES = (
    Use(
        "AllReduce",
        "Sum",
        (*_MODEL_TYPES, "i32", "i64"),
        (
            "distributed/device_communicators/cuda_communicator.py:438: tensor parallel layers, by pynccl.py:290",
            "distributed/device_communicators/pynccl.py:190: warm-up, f32",
            "v1/worker/dp_utils.py:75: sizes of batches, i32",
            "distributed/eplb/eplb_state.py:1050, 1057, 1069: loads of experts, integers",
            "distributed/elastic_ep/elastic_execute.py:369: warm-up, i32",
            "distributed/eplb/rebalance_execute.py:714: barrier, which PyTorch makes an all-reduce",
        ),
    ),
    Use(
        "AllReduce",
        "MinMax",
        _MODEL_TYPES,
        ("model_executor/layers/quantization/utils/quant_utils.py:54, 69, 91: largest magnitude of sharded weights, online FP8, NVFP4 and INT8",),
    ),
    Use(
        "ReduceScatter",
        "Sum",
        _MODEL_TYPES,
        ("distributed/device_communicators/cuda_communicator.py:528, 655, 744: sequence and expert parallel layers",),
    ),
    Use(
        "Reduce",
        "Sum",
        _MODEL_TYPES,
        (
            "distributed/device_communicators/cuda_communicator.py:649: VLLM_BATCH_INVARIANT on more than two ranks",
            "distributed/device_communicators/cuda_communicator.py:653: parts of unequal size, by pynccl.py:411",
        ),
    ),
    Use(
        "AllGather",
        "",
        (),
        (
            "distributed/device_communicators/cuda_communicator.py:487, 940, 969, 999: logits, expert parallel layers",
            "distributed/device_communicators/base_device_communicator.py:279",
            "v1/attention/backends/mla/flashmla_sparse.py:941, model_executor/layers/sparse_attn_indexer.py:154",
            "distributed/eplb/rebalance_execute.py:715",
        ),
    ),
    Use("AllGatherV", "", (), ("distributed/device_communicators/cuda_communicator.py:938: a group of broadcasts, by pynccl.py:347",)),
    Use(
        "Broadcast",
        "",
        (),
        (
            "distributed/device_communicators/cuda_communicator.py:801, distributed/parallel_state.py:849, 1026, 1056",
            "v1/worker/gpu/pp_utils.py:185, 209, 212, 223, 270, 276, v1/worker/gpu_model_runner.py:4574, 4587: sampled tokens, pipeline parallel",
        ),
    ),
    Use(
        "SendRecv",
        "",
        (),
        (
            "distributed/device_communicators/cuda_communicator.py:774, 789, 1086, distributed/parallel_state.py:1224, 1340: pipeline parallel",
            "distributed/device_communicators/base_device_communicator.py:376: gather, which PyTorch makes of sends",
            "v1/attention/ops/dcp.py:1000, v1/worker/gpu/sample/batch_shard.py:300: all-to-all, which PyTorch makes of sends",
            "distributed/eplb/eplb_communicator.py:121, 137, 684, 694: weights of experts",
        ),
    ),
)
#: What GB10s can use among themselves: no NVLink switch (NVLS), no switch that computes (COLLNET).
_ALGORITHMS = ("RING", "TREE", "PAT")


def vllm_functions() -> str:
    """ONLY_FUNCS for what is in USES on GPUs without NVLink, every protocol."""
    algorithms = f"({'|'.join(_ALGORITHMS)}) *"
    return "|".join(
        " ".join(
            [use.collective, *([use.operation, f"({'|'.join(_with_unsigned(use.types))})"] if use.operation else [])]
            + ([algorithms] if use.collective != "SendRecv" else [])
        )
        # NCCL ends the pattern with $, which then belongs to the last alternative alone; the shortest name must not be last.
        for use in sorted(USES, key=lambda use: use.collective != "SendRecv")
    )


def selected(pattern: str) -> frozenset[str]:
    """Names of the functions that ONLY_FUNCS chooses, all for "". As generate.py does it: * is a word, letters of any case. Raises re.error."""
    wanted = re.compile(pattern.replace("*", "[^ ]*") + "$", re.IGNORECASE)
    return frozenset(name for name in _names() if not pattern or wanted.match(name))


def pattern_problems(pattern: str, path: str) -> list[Problem]:
    """Say what is wrong with an ONLY_FUNCS, which make hands to a shell: it chooses nothing, or is none."""
    expected = 'words, *, | and parentheses, such as "AllReduce Sum (bf16|f32) RING *"'
    if not re.fullmatch(r"[\w *|()]*", pattern, re.ASCII):
        return [Problem(path, f"{pattern!r} has other characters", expected, f"correct {path}")]
    try:
        chosen = selected(pattern)
    except re.error as error:
        return [Problem(path, f"{pattern!r} is not a pattern: {error}", expected, f"correct {path}")]
    return [] if chosen else [Problem(path, f"{pattern!r} chooses no function of NCCL", expected, f"correct {path}")]


def _with_unsigned(types: tuple[str, ...]) -> list[str]:
    """Sums of signed integers are those of unsigned ones, whose kernels have to be chosen too."""
    return [name for kind in types for name in ([kind, f"u{kind[1:]}"] if kind.startswith("i") else [kind])]


def _names() -> Iterator[str]:
    for collective, algorithms in _MOVES.items():
        yield from (" ".join((collective, *rest)) for rest in itertools.product(algorithms, _PROTOCOLS))
    yield "SendRecv"
    for collective, algorithms in _REDUCES.items():
        yield from (" ".join((collective, *rest)) for rest in itertools.product(_OPERATIONS, _TYPES, algorithms, _PROTOCOLS))
