"""A CUDA toolkit that compiles for an Arm server, in a folder that the hosts of the scenario arm64 share."""

from __future__ import annotations

import shutil
from pathlib import Path

from live_cluster import Cluster
from repository import ROOT

#: Where hosts find the folder, and the toolkit's name in it.
PLACE, TOOLKIT = "/opt/nccl", "cuda"
#: The machine's nvcc, and headers and libraries for aarch64. `make molecule` installs both.
NVCC, AARCH64 = ROOT / ".venv/cuda/nvidia/cu13", ROOT / ".venv/cuda-arm64/nvidia/cu13"


def folder(cluster: Cluster) -> Path:
    """Return the folder on this machine."""
    return Path(next(bind["src"] for bind in cluster.nodes["spark1"]["lab_binds"] if bind["dest"] == PLACE))


def toolkit(builds: Path) -> Path:
    """Make and return a CUDA toolkit of the machine's programs, and of headers and libraries for aarch64."""
    folder = builds / TOOLKIT
    shutil.rmtree(folder, ignore_errors=True)
    # nvcc finds its parts by its own path, so a link of it would lead back.
    shutil.copytree(NVCC / "bin", folder / "bin")
    (folder / "nvvm").symlink_to(NVCC / "nvvm")
    target = folder / "targets/sbsa-linux"
    target.mkdir(parents=True)
    for place, libraries in ((folder, "lib64"), (target, "lib")):
        (place / "include").symlink_to(AARCH64 / "include")
        (place / libraries).symlink_to(AARCH64 / "lib")
    return folder
