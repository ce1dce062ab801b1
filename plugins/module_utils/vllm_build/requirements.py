# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages of the build environment: the runtime's torch, and the tools that vLLM's build imports."""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()
