# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the folders of image layers on the controller."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from typing import Any

SCRIPT = "run.sh"
#: A mod holds scripts, templates and patches.
_MOST_FILES, _MOST_BYTES = 1000, 64 << 20


_EMPTY: Mapping[str, Any] = {"folder": "", "digest": "", "packages": [], "network": False}


def of_inventory(given: Any, inventory: str) -> dict[str, Any]:
    """Return a layer of gb10_image_layers: {name, folder, digest, packages, network, problem}.

    ``inventory`` is the folder at which relative paths start. layers.check() reports a value of another form.
    """
    term = given if isinstance(given, dict) else {}
    common = {"network": term.get("network", False) is True}
    if "packages" in term:
        packages = term["packages"] if isinstance(term["packages"], list) else []
        return {**_EMPTY, "name": "packages", "packages": packages, "problem": "", **common}
    path = os.path.expanduser(str(term.get("path", ""))).rstrip("/")
    return {**_read(os.path.join(inventory, path)), **common}


def of_recipe(mod: str, recipe: str) -> dict[str, Any]:
    """Return the layer of a mod in a recipe, which is untrusted: a folder in the recipe's folder or in one above it.

    recipe/parse.py validates the form of ``mod``. No part of it may be a link, which could lead to any folder.
    """
    inside = not os.path.isabs(mod) and ".." not in mod.split("/")
    found = _nearest(recipe, mod.rstrip("/")) if inside and recipe else ""
    if not found:
        return {**_EMPTY, "name": mod, "problem": f"no folder {mod} in the folder of {recipe} or above it"}
    above = os.path.realpath(found.removesuffix(mod.rstrip("/")))
    if os.path.realpath(found) != os.path.join(above, mod.rstrip("/")):
        return {**_EMPTY, "name": mod, "problem": f"{found} is a link, or is behind one"}
    return _read(found)


def _read(folder: str) -> dict[str, Any]:
    name = os.path.basename(folder)
    try:
        return {**_EMPTY, "name": name, "folder": folder, "digest": digest(folder), "problem": ""}
    except (OSError, ValueError) as error:
        return {**_EMPTY, "name": name, "problem": str(error)}


def digest(folder: str) -> str:
    """Return the SHA-256 of a layer's folder: names, contents, and which files are executable.

    Raises ValueError for a folder without run.sh, for links and other special files, and for too many files or bytes;
    OSError for an unreadable one.
    """
    if not os.path.isfile(os.path.join(folder, SCRIPT)):
        raise ValueError(f"{folder} has no {SCRIPT}")
    state, count, size = hashlib.sha256(), 0, 0
    for path, entry in sorted((path, os.lstat(path)) for path in _files(folder)):
        if not stat.S_ISREG(entry.st_mode):
            raise ValueError(f"{path} is a link or a special file")
        count, size = count + 1, size + entry.st_size
        if count > _MOST_FILES or size > _MOST_BYTES:
            raise ValueError(f"{folder} has more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MiB")
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        name = os.path.relpath(path, folder)
        state.update(f"{name}\0{bool(entry.st_mode & stat.S_IXUSR)}\0{content}\0".encode())
    return state.hexdigest()


def _files(folder: str) -> list[str]:
    """Return all entries below a folder except real folders, without following links."""
    found = []
    for base, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(base, name))]
        found += [os.path.join(base, name) for name in (*names, *links)]
    return found


def _nearest(start: str, relative: str) -> str:
    """Return the folder ``relative`` in the folder of ``start`` or in one above it, "" if there is none."""
    folder = os.path.dirname(start)
    while True:
        found = os.path.join(folder, relative)
        if os.path.isdir(found):
            return found
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above
