# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decision about a build, and the words that name builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

CUDA = "cuda"
#: The states of a Choice.
OFF, MISSING, READY = "off", "missing", "ready"
#: A build in a node's store: the name, wheel and sha256 of its stamp.
Stored = Mapping[str, str]
SHA256 = re.compile("[0-9a-f]{64}")
#: A wheel's file name, which becomes part of a path and of a Containerfile.
WHEEL = re.compile(r"vllm-[A-Za-z0-9._+-]{1,245}\.whl")


@dataclass(frozen=True)
class Choice:
    """Whether the cluster runs a build, and the one wheel for the GPUs of all nodes.

    ``state``: off (not wanted), missing (not on every node that needs it yet) or ready. ``key`` names the source and
    the patches, and ``identity`` is the exact source: "commit 73cf…" or "sha256 e672…". A
    build for CPUs has no ``capabilities``. ``nodes``
    need the wheel: for an image only the head. ``wheel`` and ``sha256`` are "" until the first node has it. ``driver``
    is the newest CUDA release that the drivers of all nodes support, "" if unknown.
    """

    state: str
    why: tuple[str, ...] = ()
    key: str = ""
    name: str = ""
    capabilities: tuple[str, ...] = ()
    torch: str = ""
    nodes: tuple[str, ...] = ()
    wheel: str = ""
    sha256: str = ""
    driver: str = ""
    identity: str = ""
