# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find a recipe by its model in a clone of NVIDIA/local-ai-inference-recipes on the controller.

A clone is untrusted: no link in it leads out of it, and git runs nothing of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import tempfile
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils.recipe import nvidia

PREFIX = "nvidia:"
#: The catalog's name of this number of Sparks.
_HARDWARE = {1: "dgx-spark", 2: "dgx-spark-2gpu", 4: "dgx-spark-4gpu"}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*", re.ASCII)
_SCHEMA = re.compile(r"^schema_version: (\d{1,6})$", re.MULTILINE | re.ASCII)
_REMOTE = re.compile(r"((?:https://|file:///)[^\s@]+)@([0-9a-f]{40})", re.ASCII)
#: Seconds for git to fetch one commit, which has some hundred small files.
_FETCH = 300


def clone(given: str, inventory: str) -> tuple[str, str]:
    """Return the folder of gb10_nvidia_recipes and "", or "" and why there is none.

    ``given``: a folder, which starts at the inventory, or URL@COMMIT. It is fetched into the user's cache once.
    """
    if "://" not in given:
        return (str(Path(inventory) / Path(given).expanduser()) if given else ""), ""
    found = _REMOTE.fullmatch(given)
    if not found:
        return "", "gb10_nvidia_recipes is not an https or file URL with @, a commit of 40 digits and no password"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gb10" / "nvidia-recipes"
    folder = cache / found[2]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w", encoding="ascii") as lock:
            # The actions of all hosts look for it at once.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(found[1], found[2], cache, folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        return "", f"commit {found[2]} of {found[1]} could not be fetched: {said[-1][:200] if said else 'no reason'}"
    return str(folder), ""


def _fetch(url: str, commit: str, cache: Path, folder: Path) -> None:
    """Write the files of a commit into a new folder. Raises OSError and SubprocessError."""
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        attributes = Path(temporary) / ".git/info/attributes"
        attributes.parent.mkdir(parents=True)
        # It outranks the commit's .gitattributes, which could name a filter in the user's configuration.
        attributes.write_text("* -filter\n", encoding="ascii")
        for arguments in (
            ("init", "--quiet"),
            ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", url, commit),
            # A link becomes a file with its target.
            ("-c", "core.symlinks=false", "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach", commit),
        ):
            subprocess.run(
                ["git", "-C", temporary, *arguments],
                check=True,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=_FETCH,
                env=os.environ | {"GIT_TERMINAL_PROMPT": "0"},
            )
        Path(temporary).rename(folder)
        # The context removes this name.
        Path(temporary).mkdir()


def find(name: str, folder: str, nodes: int) -> tuple[str, str, str]:
    """Return the file of ``nvidia:NAME`` for a number of nodes, why there is none, and older measured recipes; each "".

    NAME is the end of the place of a recipe without hardware and program: a model, a vendor's model, or either with the
    folders below, such as qwen3.8-27b/128gb/nvfp4. Of several recipes the one with the newest schema counts. If it was
    not measured, the names of those with figures are returned too.
    """
    wanted, hardware = name.removeprefix(PREFIX), _HARDWARE.get(nodes)
    if not folder:
        return "", f"{name}, but gb10_nvidia_recipes is not set", ""
    if not hardware:
        return "", f"{name} for {nodes} nodes, but the catalog has recipes for 1, 2 and 4 Sparks", ""
    if not _NAME.fullmatch(wanted):
        return "", f"{name[:100]!r}, which is not the name of a model", ""
    found = _recipes(Path(folder), hardware)
    sparks = f"{nodes} Spark{'s' * (nodes > 1)}"
    if not found:
        return "", f"{name}, but {folder} is missing, or has no recipe for {sparks} and vLLM", ""
    fitting = {place: path for place, path in found.items() if _begins(place, wanted)}
    measured = [place for place, path in fitting.items() if path.with_name(nvidia.PERFORMANCE).exists()]
    newest = max(map(_schema, fitting.values()), default=0)
    fitting = {place: path for place, path in fitting.items() if _schema(path) == newest}
    if len(fitting) == 1:
        return str(*fitting.values()), "", "" if {*measured} & {*fitting} else ", ".join(measured)
    shown = ", ".join(sorted(fitting or found))
    return "", f"{name}, which fits {len(fitting)} recipes for {sparks} in {folder}: {shown}", ""


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
    # Names become lines of the plan.
    return {place: path for place, path in found.items() if _NAME.fullmatch(place)}


def _schema(path: Path) -> int:
    try:
        # A file of the checkout may have any size.
        with path.open(encoding="utf-8") as file:
            match = _SCHEMA.search(file.read(65536))
    except (OSError, UnicodeDecodeError):
        return 0
    return int(match[1]) if match else 0
