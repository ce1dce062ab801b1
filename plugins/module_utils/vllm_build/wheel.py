# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPU code in the extensions of a wheel, compared with the GPUs that it was built for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.common.spans import span
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, fat_binary
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import HITS

Extensions = Mapping[str, Sequence[fat_binary.FatBinary]]


def covered(extensions: Extensions, gpu: ComputeCapability) -> dict[str, dict[str, int]]:
    """Return {name: coverage} of the extensions with GPU code; see runtime/coverage.py."""
    return {
        name: {str(way): count for way, count in fat_binary.ways(programs, gpu).items()}
        for name, programs in sorted(extensions.items())
        if programs
    }


def problems(extensions: Extensions, gpus: Sequence[ComputeCapability]) -> list[Problem]:
    """Return why these GPUs cannot run a wheel: an extension that each model needs has no code for one of them."""
    fix = (
        "see in build.log which extensions were built and for which GPUs; correct the patches, or set "
        "vllm_build_capabilities"
    )
    # An extension without any GPU code is in the wheel, so it must not count as absent.
    empty = {name: {str(way): 0 for way in fat_binary.WAYS} for name in extensions}
    return [
        Problem("wheel", gap, f"code for {gpu}", fix)
        for gpu in gpus
        for gap in coverage.gaps({"vllm/": {}, **empty, **covered(extensions, gpu)}, str(gpu), {})
    ]


def lines(extensions: Extensions, gpus: Sequence[ComputeCapability]) -> list[str]:
    """Return one line for each GPU: "12.1: own code in 7 of 9 extensions; none in vllm/_flashmla_C"."""
    return [_line(covered(extensions, gpu), gpu) for gpu in gpus]


def _line(found: Mapping[str, Mapping[str, int]], gpu: ComputeCapability) -> str:
    own = [name for name, counts in found.items() if counts["native"]]
    older = [name for name, counts in found.items() if not counts["native"] and coverage.runs(counts)]
    without = [name for name, counts in found.items() if not coverage.runs(counts)]
    text = f"{gpu}: own code in {len(own)} of {len(found)} extensions"
    text += f"; code of an older GPU in {', '.join(older)}" if older else ""
    return text + (f"; none in {', '.join(without)}" if without else "")


def contents(extensions: Extensions) -> dict[str, dict[str, int]]:
    """Return {extension: {"sm_121a": programs, "sm_80 (PTX)": programs}} for a stamp."""
    return {
        name: {
            f"{code.architecture}" if code.kind == "cubin" else f"{code.architecture} ({code.kind.upper()})": count
            for code, count in fat_binary.counts(fat_binary.loaded(programs))
        }
        for name, programs in sorted(extensions.items())
    }


def text(stamp: Mapping[str, Any]) -> list[str]:
    """Return lines for people about a stamp: the wheel, its GPU code, its duration, and the compiler cache."""
    lines_ = [f"{stamp['wheel']}, from {stamp['source']}", *stamp["coverage"]]
    cache = stamp["ccache"] or {}
    hits, calls = sum(cache.get(name, 0) for name in HITS), sum(cache.values())
    cached = f", {hits} of {calls} results from the compiler cache" if calls else ""
    # A build that continued has no duration.
    duration = f"built in {span(stamp['seconds'])}" if stamp["seconds"] else "built in several runs"
    return [*lines_, f"{duration} with {stamp['jobs']} compilers{cached}"]
