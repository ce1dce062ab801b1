# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a wheel of vLLM may have, and the GPU code in its extensions, compared with the GPUs of the build."""

from __future__ import annotations

import configparser
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.common.spans import span
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, fat_binary
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import HITS

Extensions = Mapping[str, Sequence[fat_binary.FatBinary]]

#: The end of the folder with a package's information, below which these files may be.
INFORMATION = ".dist-info"
_INFORMATION = re.compile(
    r"(vllm-[A-Za-z0-9._+]+\.dist-info)/(METADATA|WHEEL|RECORD|entry_points\.txt|top_level\.txt|(licenses|sboms)/.+)"
)
_SEGMENT = re.compile(r"[!-.0-\[\]-~][ -.0-\[\]-~]*")
#: An entry of a group, and its object. Source: PyPA, "Entry points specification".
_ENTRY, _OBJECT = re.compile(r"[A-Za-z0-9_.-]+"), re.compile(r"vllm(\.[A-Za-z0-9_]+)*(:[A-Za-z0-9_.]+)?")
#: The most names of one report, and their characters.
_NAMED, _MOST_NAME = 5, 200
_FIX = "see what the source and the patches of the build install; remove the build if you do not know the file"


def member_problems(names: Sequence[str]) -> list[Problem]:
    """Return why root does not install the files of a wheel: only vLLM's package and its information are."""
    folders = {found[1] for name in names if (found := _INFORMATION.fullmatch(name))}
    records = [name for name in names if name.endswith(f"{INFORMATION}/RECORD")]
    refused = sorted(name for name, count in Counter(names).items() if count > 1 or not _is_member(name))
    if refused:
        more = f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
        found_text = ", ".join(name[:_MOST_NAME] for name in refused[:_NAMED]) + more
        return [Problem("wheel", found_text, "each file once, below vllm/ or in vllm-VERSION.dist-info/", _FIX)]
    if len(folders) != 1 or len(records) != 1:
        return [Problem("wheel", f"{len(folders)} folders vllm-*.dist-info", "one, with RECORD", _FIX)]
    return []


def _is_member(name: str) -> bool:
    segments = name.split("/")
    plain = all(_SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in segments)
    return plain and ((len(segments) > 1 and segments[0] == "vllm") or bool(_INFORMATION.fullmatch(name)))


def entry_points(given: str) -> str:
    """Return the entry points of a wheel in one form.

    Raises ProblemsError for another program than vllm, and for groups and objects that are not vLLM's: uv writes a
    program into the folder that root's uv is in.
    """
    parser = configparser.ConfigParser(
        delimiters=("=",), comment_prefixes=("#",), interpolation=None, default_section=""
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(given)
    except configparser.Error as error:
        raise ProblemsError(
            [Problem("wheel", "entry_points.txt has another form", "sections of entries", _FIX)]
        ) from error
    lines_ = []
    for group in parser.sections():
        own = group == "console_scripts" or re.fullmatch(r"vllm\.[a-z0-9_.]+", group)
        for name, target in parser[group].items():
            program = group != "console_scripts" or name == "vllm"
            if not (own and program and _ENTRY.fullmatch(name) and _OBJECT.fullmatch(target)):
                found = f"entry_points.txt: [{group}] {name} = {target}"[:_MOST_NAME]
                raise ProblemsError([Problem("wheel", found, "vllm, and plugins of vLLM", _FIX)])
        lines_ += [f"[{group}]", *(f"{name} = {target}" for name, target in parser[group].items()), ""]
    return "\n".join(lines_)


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
