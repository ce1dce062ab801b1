# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL's device functions: those that vLLM calls, and the build option ONLY_FUNCS, which excludes all others.

The option is intended for NCCL developers. An excluded function does not fail at run time. Its entry in the function
table is `ncclDevFunc_Nop`, which does nothing (src/device/generate.py, src/device/common.cu). So a missing collective
returns at once with the old content of the buffer. Hence the option is off by default, and such a library serves only
the one program whose calls are known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: The algorithms of each collective; SendRecv has none. Source: src/device/generate.py of 2.30.7.
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
    """A collective that vLLM calls on GPU tensors.

    ``types`` is empty if NCCL only moves bytes. ``calls`` are files and lines of vLLM 0.32.0.
    """

    collective: str
    operation: str
    types: tuple[str, ...]
    calls: tuple[str, ...]


_MODEL_TYPES = ("bf16", "f16", "f32")
#: Every call of PyNcclCommunicator, and of torch.distributed with a device group, in vLLM 0.32.0. Not included: CPU
#: groups (Gloo), the communicators of ROCm, XPU and CPU, weight transfer from a trainer, and files of single models.
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
        (
            (
                "model_executor/layers/quantization/utils/quant_utils.py:54, 69, 91: largest magnitude of sharded "
                "weights, online FP8, NVFP4 and INT8"
            ),
        ),
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
    Use(
        "AllGatherV",
        "",
        (),
        ("distributed/device_communicators/cuda_communicator.py:938: a group of broadcasts, by pynccl.py:347",),
    ),
    Use(
        "Broadcast",
        "",
        (),
        (
            "distributed/device_communicators/cuda_communicator.py:801, distributed/parallel_state.py:849, 1026, 1056",
            (
                "v1/worker/gpu/pp_utils.py:185, 209, 212, 223, 270, 276, v1/worker/gpu_model_runner.py:4574, 4587: "
                "sampled tokens, pipeline parallel"
            ),
        ),
    ),
    Use(
        "SendRecv",
        "",
        (),
        (
            (
                "distributed/device_communicators/cuda_communicator.py:774, 789, 1086, "
                "distributed/parallel_state.py:1224, 1340: pipeline parallel"
            ),
            "distributed/device_communicators/base_device_communicator.py:376: gather, which PyTorch makes of sends",
            (
                "v1/attention/ops/dcp.py:1000, v1/worker/gpu/sample/batch_shard.py:300: all-to-all, which PyTorch "
                "makes of sends"
            ),
            "distributed/eplb/eplb_communicator.py:121, 137, 684, 694: weights of experts",
        ),
    ),
)
#: The algorithms between GB10s, without an NVLink switch (NVLS) or an in-network computing switch (COLLNET).
_ALGORITHMS = ("RING", "TREE", "PAT")


def vllm_functions() -> str:
    """Return ONLY_FUNCS for USES on GPUs without NVLink, with every protocol."""
    algorithms = f"({'|'.join(_ALGORITHMS)}) *"
    return "|".join(
        " ".join(
            [use.collective, *([use.operation, f"({'|'.join(_with_unsigned(use.types))})"] if use.operation else [])]
            + ([algorithms] if use.collective != "SendRecv" else [])
        )
        # NCCL appends $ to the pattern, which binds to the last alternative only. The shortest name must not be last.
        for use in sorted(USES, key=lambda use: use.collective != "SendRecv")
    )


def selected(pattern: str) -> frozenset[str]:
    """Return the functions that ONLY_FUNCS selects, all for "".

    As in generate.py, * matches a word, and case does not matter. Raises re.error.
    """
    wanted = re.compile(pattern.replace("*", "[^ ]*") + "$", re.IGNORECASE)
    return frozenset(name for name in _names() if not pattern or wanted.match(name))


def pattern_problems(pattern: str, path: str) -> list[Problem]:
    """Return the errors in an ONLY_FUNCS, which make passes to a shell: characters, syntax, or no match."""
    expected = 'words, *, | and parentheses, such as "AllReduce Sum (bf16|f32) RING *"'
    if not re.fullmatch(r"[\w *|()]*", pattern, re.ASCII):
        return [Problem(path, f"{pattern!r} has invalid characters", expected, f"correct {path}")]
    try:
        chosen = selected(pattern)
    except re.error as error:
        return [Problem(path, f"{pattern!r} is not a valid pattern: {error}", expected, f"correct {path}")]
    return [] if chosen else [Problem(path, f"{pattern!r} matches no function of NCCL", expected, f"correct {path}")]


def _with_unsigned(types: tuple[str, ...]) -> list[str]:
    """Add the unsigned types: their kernels also compute sums of signed integers."""
    return [name for kind in types for name in ([kind, f"u{kind[1:]}"] if kind.startswith("i") else [kind])]


def _names() -> Iterator[str]:
    for collective, algorithms in _MOVES.items():
        yield from (" ".join((collective, *rest)) for rest in itertools.product(algorithms, _PROTOCOLS))
    yield "SendRecv"
    for collective, algorithms in _REDUCES.items():
        yield from (
            " ".join((collective, *rest)) for rest in itertools.product(_OPERATIONS, _TYPES, algorithms, _PROTOCOLS)
        )
