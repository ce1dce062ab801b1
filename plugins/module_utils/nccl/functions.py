# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL's build option ONLY_FUNCS, which excludes all other device functions.

The option is intended for NCCL developers. An excluded function does not fail at run time. Its entry in the function
table is `ncclDevFunc_Nop`, which does nothing (src/device/generate.py, src/device/common.cu). So a missing collective
returns at once with the old content of the buffer. Hence the option is off by default, and such a library serves only
the one program whose calls are known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

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


def _names() -> Iterator[str]:
    for collective, algorithms in _MOVES.items():
        yield from (" ".join((collective, *rest)) for rest in itertools.product(algorithms, _PROTOCOLS))
    yield "SendRecv"
    for collective, algorithms in _REDUCES.items():
        yield from (
            " ".join((collective, *rest)) for rest in itertools.product(_OPERATIONS, _TYPES, algorithms, _PROTOCOLS)
        )
