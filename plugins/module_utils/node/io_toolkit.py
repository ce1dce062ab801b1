# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the CUDA toolkit of this host, and the other parts of a compilation."""

from __future__ import annotations

import glob
import os
import shutil
import sysconfig
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit

#: Folders of CUDA toolkits, best first. The link that the packages create comes before the versioned folders.
_TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")


def find(run: Run, home: str | None) -> Toolkit:
    """Return the toolkit in ``home``, or the first installed one. Raises ProblemsError if it does not work."""
    places = [home] if home else [path for pattern in _TOOLKITS for path in sorted(glob.glob(pattern), reverse=True)]
    for place in places:
        nvcc = f"{place}/bin/nvcc"
        if not os.access(nvcc, os.X_OK):
            continue
        answers = [run([nvcc, option]) for option in ("--version", "--list-gpu-code")]
        if any(status != 0 for status, _stdout, _stderr in answers):
            found = f"{nvcc} does not run: {answers[0][2].strip()}"
            raise ProblemsError([Problem("cuda_home", found, "a working CUDA toolkit", "repair it, or set another")])
        return Toolkit.of_nvcc(place, answers[0][1], answers[1][1])
    if home:
        found, fix = f"{home}/bin/nvcc not found", "correct it, or leave it unset"
        raise ProblemsError([Problem("cuda_home", found, "the folder of a CUDA toolkit", fix)])
    return Toolkit(None)


def facts(run: Run) -> dict[str, Any]:
    """Return {home, release, architectures, reason, host_compiler} for node_info; ``home`` is "" without a working
    toolkit.

    ``reason``: why the toolkit does not work, or "". ``host_compiler``: whether g++ and Python's headers exist.
    """
    try:
        toolkit, reason = find(run, None), ""
    except ProblemsError as error:
        toolkit, reason = Toolkit(None), error.problems[0].found
    headers = os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
    return {
        "home": toolkit.home or "",
        "release": toolkit.release,
        "architectures": sorted(toolkit.architectures),
        "reason": reason,
        "host_compiler": headers and shutil.which("g++") is not None,
    }
