# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the wheels that replace those of a lock, or of an image, before root installs them."""

from __future__ import annotations

import os

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: What a user does about a built wheel that has changed.
REBUILD = "remove the build with its directory, and run site.yml --tags vllm_build,vllm_runtime"
_REPLACE = "use the correct file, or correct gb10_runtime_wheels"


def check(path: str, sha256: str, built: bool) -> list[Problem]:
    """Return the problem of a file with another hash. ``built``: it is a build of the node. Raises OSError."""
    found = io_file.sha256(path) if os.path.isfile(path) else "none"
    return [] if found == sha256 else [Problem(path, f"its sha256 is {found}", sha256, REBUILD if built else _REPLACE)]
