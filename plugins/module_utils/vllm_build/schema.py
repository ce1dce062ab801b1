# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inputs of a build, and a build in the store of a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

AUTO, TRUE, FALSE = WANTED = ("auto", "true", "false")
#: A wheel's file name, which becomes part of a path and of a Containerfile.
WHEEL = re.compile(r"vllm-[A-Za-z0-9._+-]{1,245}\.whl")
#: Statistics of ccache that io_run.py writes: results that were not compiled again, and compilations.
HITS, MISSES = ("direct_cache_hit", "preprocessed_cache_hit"), ("cache_miss",)


@dataclass(frozen=True)
class Patch:
    """A patch for the source: a file on the controller, and its SHA-256, "" if it cannot be read."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Dependency:
    """A dependency's source: the variable of vLLM's CMake files, a tar file on the controller, and its expected
    SHA-256.

    ``found`` is the file's SHA-256, "" if it cannot be read.
    """

    variable: str
    archive: str
    sha256: str
    found: str = ""


@dataclass(frozen=True)
class Request:
    """The user's variables; see the defaults of the role vllm_build.

    ``found`` is the SHA-256 of a source that is a file, "" if it cannot be read. ``wrong`` are the values of a wrong
    type, by name.
    """

    wanted: str
    source: str
    version: str
    commit: str
    checksum: str
    patches: tuple[Patch, ...]
    capabilities: tuple[str, ...]
    separate: bool
    environment: Mapping[str, str] = field(default_factory=dict)
    dependencies: tuple[Dependency, ...] = ()
    found: str = ""
    wrong: Mapping[str, str] = field(default_factory=dict)

    @property
    def archive(self) -> bool:
        """Whether the source is a tar file on the controller, not a git repository."""
        return self.source.endswith((".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".tgz"))

    @property
    def identity(self) -> str:
        """The exact source: "commit 73cf…" or "sha256 e672…"."""
        return f"sha256 {self.checksum}" if self.archive else f"commit {self.commit}"


@dataclass(frozen=True)
class Stored:
    """A build in a node's store: its name, its wheel's file name and SHA-256, and its duration with so many
    compilers."""

    name: str
    wheel: str
    sha256: str
    seconds: float = 0.0
    jobs: int = 0


@dataclass(frozen=True)
class BuildNode:
    """A node: its name, the compute capability of its GPU ("" if unknown), its builds, newest first, and its published
    wheel.

    ``published`` has the coverage of each extension (runtime/coverage.py), {} for a build without GPU code, None if the
    published runtime is not installed. ``cores`` and free ``memory`` in bytes are 0 if unknown. ``cuda`` is the newest
    CUDA release that the driver supports ("13.0"), "" if unknown.
    """

    name: str
    capability: str
    stored: tuple[Stored, ...]
    published: Mapping[str, Mapping[str, int]] | None
    cores: int = 0
    memory: int = 0
    cuda: str = ""


@dataclass(frozen=True)
class Item:
    """One wheel: its name, GPUs ("12.1"), TORCH_CUDA_ARCH_LIST, version, torch, nodes, and the file in each node's
    store.

    A build for CPUs has no GPUs. ``nodes`` need the wheel: for an image only the head. ``wheel`` and ``sha256`` are ""
    until the first node has it. ``driver`` is the newest CUDA release that the drivers of all its ranks support, "" if
    unknown.
    """

    name: str
    capabilities: tuple[str, ...]
    architectures: str
    version: str
    torch: str
    nodes: tuple[str, ...]
    wheel: str
    sha256: str
    driver: str


@dataclass(frozen=True)
class Choice:
    """Whether the cluster runs a build, and why.

    ``state``: off (not wanted), undecided (the published wheel must be installed first), published (it is sufficient),
    missing (a build is needed and not on every node that needs it yet) or ready. ``key`` names the source and the
    patches. ``identity`` is the exact source, and ``archive`` whether it is a file; see Request.
    """

    state: str
    why: tuple[str, ...]
    key: str = ""
    wheels: tuple[Item, ...] = ()
    identity: str = ""
    archive: bool = False

    @property
    def built(self) -> bool:
        """Whether the runtime has a build's wheel."""
        return self.state in (MISSING, READY)


@dataclass(frozen=True)
class Status:
    """The status that a build's program wrote: the build's name, its state, seconds, wheel, ccache's statistics, and
    {dependency: commit}."""

    name: str = ""
    state: str = ""
    seconds: float = 0.0
    wheel: str = ""
    ccache: Mapping[str, int] = field(default_factory=dict)
    dependencies: Mapping[str, str] = field(default_factory=dict)


OFF, UNDECIDED, PUBLISHED, MISSING, READY = "off", "undecided", "published", "missing", "ready"
