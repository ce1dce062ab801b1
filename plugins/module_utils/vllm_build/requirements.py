# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages of the build environment: the runtime's torch, and the tools that vLLM's build imports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: An entry of a requirements file with its continued lines.
_ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)(?:.*\\\n)*.*$", re.MULTILINE)
#: Packages that only the runtime's lock has. numpy is in torch's headers' tests only, but vLLM's build imports torch.
_OF_RUNTIME = ("uv", "torch", "numpy")


def entries(lock: str) -> Mapping[str, str]:
    """Return {normalized name: entry with its hashes} of a requirements file."""
    return {_normal(match["name"]): match[0] for match in _ENTRY.finditer(lock)}


def requirements(lock: str, tools: str) -> str:
    """Return the requirements file of the build environment. Where both pin a package, the runtime's ``lock`` counts.

    The lock is also the constraint of the installation, which pins what torch depends on.
    """
    runtime, own = entries(lock), entries(tools)
    names = [*(name for name in _OF_RUNTIME if name in runtime), *own]
    return "".join(f"{runtime.get(name) or own[name]}\n" for name in dict.fromkeys(names))


def dependencies(store: str, unpacked: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the folder of each unpacked dependency by the variable of vLLM's CMake files that names it.

    An entry has ``variable``, ``sha256`` and, below the archive's folder, ``folder``.
    """
    return {
        each["variable"]: f"{store}/dependencies/{each['sha256'][:12]}/{each.get('folder', '')}".removesuffix("/")
        for each in unpacked
    }


def version(lock: str, package: str) -> str:
    """Return the release of a package that a lock pins, without a local part; "" if it does not pin it."""
    entry = entries(lock).get(package, "")
    found = re.match(r"[^=@]+==\s*([^+;\s\\]+)", entry) or re.search(r"/[A-Za-z0-9_.]+-([0-9][^-%+/]*)[-%+]", entry)
    return found[1] if found else ""


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()
