# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the GPU code in the extensions of an installed runtime, without CUDA and without loading them."""

from __future__ import annotations

import glob
import mmap
import os
import stat

from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, fat_binary

_MOST_FILES = 64


def read(site: str, gpu: ComputeCapability) -> dict[str, dict[str, int]]:
    """Return {name: coverage} of the extensions with GPU code in a package folder, sorted; see coverage.py.

    Raises ProblemsError for a damaged file, OSError if one cannot be read.
    """
    found = {}
    paths = [path for pattern in coverage.PATTERNS for path in sorted(glob.glob(f"{glob.escape(site)}/{pattern}"))]
    for path in paths[:_MOST_FILES]:
        if programs := _programs(path):
            found[coverage.name(os.path.relpath(path, site))] = {
                str(way): count for way, count in fat_binary.ways(programs, gpu).items()
            }
    return dict(sorted(found.items()))


def _programs(path: str) -> list[fat_binary.FatBinary]:
    # Opening a pipe must not block, and an empty file cannot be mapped.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or not state.st_size:
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as data:
            return fat_binary.loaded(fat_binary.read(data, path))
