# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of module vllm_build for a build of the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import requirements
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Choice, Item


@dataclass(frozen=True)
class RoleSettings:
    """The role's variables that a build on the head reads."""

    vllm_build_source: str
    vllm_build_commit: str
    vllm_build_patches: Sequence[str]
    vllm_build_dependencies: Sequence[Mapping[str, Any]]
    vllm_build_cuda_home: str
    vllm_build_jobs: int
    vllm_build_nvcc_threads: int
    vllm_build_ccache: bool
    vllm_build_network: bool
    vllm_build_while_serving: bool
    vllm_build_timeout: int
    vllm_build_environment: Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """The head: its ``store`` of builds, the stack's device and CUDA release, and the units that hold a model.

    ``requirements`` is the text of the requirements file of the build environment.
    """

    store: str
    device: str
    cuda: str
    units: Sequence[str]
    requirements: str

    @property
    def folder(self) -> str:
        """The build environment, named after its packages."""
        return f"{self.store}/environment-{hashlib.sha256(self.requirements.encode()).hexdigest()[:12]}"


def check(settings: RoleSettings, build: Choice, item: Item, head: Head) -> dict[str, Any]:
    """Return the options that check the requirements of a build, before there is a source."""
    source = settings.vllm_build_source.rpartition("/")[2]
    home = {"cuda_home": settings.vllm_build_cuda_home} if settings.vllm_build_cuda_home else {}
    return {
        "store": head.store,
        "name": item.name,
        "version": item.version,
        "device": head.device,
        "capabilities": list(item.capabilities),
        "architectures": item.architectures,
        "torch": item.torch,
        "cuda": head.cuda,
        "driver": item.driver,
        "identity": f"{source} {build.identity}",
        "python": f"{head.folder}/bin/python",
        "program": f"{head.store}/io_run.py",
        **home,
        "jobs": settings.vllm_build_jobs,
        "nvcc_threads": settings.vllm_build_nvcc_threads,
        "ccache": settings.vllm_build_ccache,
        "network": settings.vllm_build_network,
        "while_serving": settings.vllm_build_while_serving,
        "units": list(head.units),
        "timeout": settings.vllm_build_timeout,
        "environment": {
            **settings.vllm_build_environment,
            **requirements.dependencies(head.store, settings.vllm_build_dependencies),
        },
    }


def start(settings: RoleSettings, build: Choice, store: str) -> dict[str, Any]:
    """Return the further options that start a build from its source."""
    patches = [path.rpartition("/")[2] for path in settings.vllm_build_patches]
    return {
        "commit": "" if build.archive else settings.vllm_build_commit,
        "patches": [f"{store}/patches/{name}" for name in patches],
    }
