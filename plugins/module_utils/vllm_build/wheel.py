# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a wheel of vLLM may have, and the GPU code in its extensions, compared with the GPUs of the build."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage

#: {compute capability: {extension: coverage}}; see runtime/coverage.py.
Found = Mapping[str, Mapping[str, coverage.Coverage]]
#: The end of the folder with a package's information, below which these files may be.
INFORMATION = ".dist-info"
_INFORMATION = re.compile(
    r"(vllm-[A-Za-z0-9._+]+\.dist-info)/(METADATA|WHEEL|RECORD|entry_points\.txt|top_level\.txt|(licenses|sboms)/.+)"
)
_SEGMENT = re.compile(r"[!-.0-\[\]-~][ -.0-\[\]-~]*")
#: Groups with the program vllm and vLLM's plugins, as setuptools writes them. Source: PyPA, "Entry points
#: specification".
_OBJECT = r"vllm(?:\.[A-Za-z0-9_]+)*(?::[A-Za-z0-9_.]+)?\n+"
_ENTRIES = re.compile(
    rf"(?:\[console_scripts\]\n(?:vllm = {_OBJECT})?|\[vllm\.[a-z0-9_.]+\]\n(?:[A-Za-z0-9_.-]+ = {_OBJECT})*)*"
)
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
    plain = all(_SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in name.split("/"))
    return plain and (name.startswith("vllm/") or bool(_INFORMATION.fullmatch(name)))


def entry_problems(text: str) -> list[Problem]:
    """Return why root does not install a wheel with these entry points: only those of vLLM are, and one program, vllm.

    uv writes a program into the folder that root's uv is in.
    """
    found, expected = f"entry_points.txt has {text[:_MOST_NAME]!r}", "the program vllm, and plugins of vLLM"
    return [] if _ENTRIES.fullmatch(f"{text}\n") else [Problem("wheel", found, expected, _FIX)]


def problems(found: Found) -> list[Problem]:
    """Return why GPUs cannot run a wheel: an extension that each model needs has no code for one of them."""
    fix = (
        "see in build.log which extensions were built and for which GPUs; correct the patches, or set "
        "vllm_build_capabilities"
    )
    # Without an extension of vLLM, nothing would be known.
    return [
        Problem("wheel", gap, f"code for {gpu}", fix)
        for gpu, extensions in found.items()
        for gap in coverage.gaps({"vllm/": {}, **extensions}, gpu, {})
    ]


def lines(found: Found) -> list[str]:
    """Return one line for each GPU and extension: "12.1: vllm/_C: 85 native, 0 same major, 6 PTX, 0 none"."""
    return [
        f"{gpu}: {name}: {coverage.described(counts)}"
        for gpu, extensions in found.items()
        for name, counts in extensions.items()
    ]
