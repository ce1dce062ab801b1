# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find a recipe by its model in a clone of NVIDIA/local-ai-inference-recipes on the controller.

A clone is untrusted: no link in it leads out of it.
"""

from __future__ import annotations

import re
from pathlib import Path

PREFIX = "nvidia:"
#: The catalog's name of this number of Sparks.
_HARDWARE = {1: "dgx-spark", 2: "dgx-spark-2gpu", 4: "dgx-spark-4gpu"}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*", re.ASCII)
_SCHEMA = re.compile(r"^schema_version: (\d+)$", re.MULTILINE | re.ASCII)


def find(name: str, folder: str, nodes: int) -> tuple[str, str]:
    """Return the file of ``nvidia:NAME`` for a number of nodes and "", or "" and why there is none.

    NAME is the end of the place of a recipe without hardware and program: a model, a vendor's model, or either with the
    folders below, such as qwen3.8-27b/128gb/nvfp4. Of several recipes the one with the newest schema counts.
    """
    wanted, hardware = name.removeprefix(PREFIX), _HARDWARE.get(nodes)
    if not folder:
        return "", f"{name}, but gb10_nvidia_recipes is not set"
    if not hardware:
        return "", f"{name} for {nodes} nodes, but the catalog has recipes for 1, 2 and 4 Sparks"
    if not _NAME.fullmatch(wanted):
        return "", f"{name[:100]!r}, which is no name of a model"
    found = _recipes(Path(folder), hardware)
    fitting = {place: path for place, path in found.items() if _begins(place, wanted)}
    newest = max(map(_schema, fitting.values()), default=0)
    fitting = {place: path for place, path in fitting.items() if _schema(path) == newest}
    if len(fitting) == 1:
        return str(*fitting.values()), ""
    shown = ", ".join(sorted(fitting or found)) or "none"
    return "", f"{name}, which fits {len(fitting)} recipes for {nodes} Spark{'s' * (nodes > 1)} in {folder}: {shown}"


def _begins(place: str, wanted: str) -> bool:
    """Return whether the wanted words begin at the vendor or at the model of a place."""
    vendor = place.partition("/")[0]
    return f"{place}/".startswith((f"{wanted}/", f"{vendor}/{wanted}/"))


def _recipes(folder: Path, hardware: str) -> dict[str, Path]:
    """Return place -> file of all recipes for vLLM on this hardware: vendor, model and the folders below."""
    root = folder.resolve()
    found = {}
    for path in sorted(folder.glob(f"models/*/*/{hardware}/linux/vllm/**/recipe.yaml")):
        if path.resolve().is_relative_to(root):
            vendor, model, _hardware, _os, _program, *rest, _file = path.relative_to(folder / "models").parts
            found["/".join((vendor, model, *rest))] = path
    return found


def _schema(path: Path) -> int:
    try:
        match = _SCHEMA.search(path.read_text(encoding="utf-8")[:65536])
    except (OSError, UnicodeDecodeError):
        return 0
    return int(match[1]) if match else 0
