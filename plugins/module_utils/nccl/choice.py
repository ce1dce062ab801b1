# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether to build NCCL for a cluster or to use the runtime's. Equal facts give equal decisions in every run.

A library is given as library.Library.facts() returns it; {} means that the runtime has none, None that it cannot be
read yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release as numbers
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import build as nccl_build
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import patches
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import NcclInputs

AUTO, TRUE, FALSE = WANTED = ("auto", "true", "false")
#: The first release whose proxy retries a weak compare-and-swap, which can fail spuriously on ARM. In older releases
#: such a failure loses operation slots, until a rank waits for one forever.
#: Source: NVIDIA/nccl, release v2.29.3-1 and issue 2353; marin-community/marin issue 7344.
HANG_FIXED = nccl_build.MINIMUM
#: Compiled with this GCC or newer, older releases do not hang. Source: the notes of that release.
HANG_COMPILER = 10
#: The first release with NCCL_IB_SUBNET_AWARE_ROUTING. Without it a ring of cables fails.
#: Source: eugr/spark-vllm-docker (2026-05-18); NVIDIA/dgx-spark-playbooks, nccl.
RING = (2, 30)
_ARM = "aarch64"


@dataclass(frozen=True)
class NcclNode:
    """A node: its name, the compute capability of its GPU ("" if unknown), and the library of its runtime."""

    name: str
    capability: str
    library: Mapping[str, Any] | None


@dataclass(frozen=True)
class Choice:
    """Whether to build, and why. ``final`` is False if no library was read yet, so only the release counted."""

    build: bool
    final: bool
    why: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return the choice as plain data."""
        return {**asdict(self), "why": list(self.why)}


@dataclass(frozen=True)
class Loaded:
    """The NCCL that the ranks load: its release, "" if unknown, and the GCC releases that compiled it, () if
    unknown."""

    release: str
    gcc: tuple[str, ...] = ()


def built(tag: str) -> Loaded:
    """Return the library of a build of this tag, such as v2.30.7-1."""
    return Loaded(_of_tag(tag))


def loaded(library: Mapping[str, Any], bundled: str) -> Loaded:
    """Return the runtime's library; ``bundled`` is the release in the lock or the image, for an unknown one."""
    return Loaded(_of_tag(library.get("version") or bundled), tuple(library.get("gcc", ())))


def _of_tag(tag: str) -> str:
    return tag.removeprefix("v").partition("-")[0]


def new_compilers(gcc: Sequence[str]) -> bool:
    """Return whether all compilers of a library are GCC releases without the hang; False if no compiler is known."""
    return bool(gcc) and all(int(text.partition(".")[0]) >= HANG_COMPILER for text in gcc)


def hang(library: Mapping[str, Any]) -> str:
    """Return why ranks can hang on ARM with this library, "" if they cannot."""
    release, compilers = numbers(library["version"] or ""), library["gcc"]
    if library["machine"] != _ARM or (release is not None and release >= HANG_FIXED):
        return ""
    if new_compilers(compilers):
        return ""
    # The old compiler may be that of CUDA's static library. The file does not record which compiler built NCCL itself.
    if release is None:
        return f"{_named(library)} may be older than {_dotted(HANG_FIXED)}; older releases can hang on ARM"
    made = f"was compiled with GCC {' and '.join(compilers)}" if compilers else "does not record its compiler"
    return (
        f"{_named(library)} is older than {_dotted(HANG_FIXED)} and {made}: before GCC {HANG_COMPILER} its ranks "
        "can hang on ARM"
    )


def reasons(node: NcclNode, ring: bool) -> list[str]:
    """Return why the library of a node, which was read, is not sufficient."""
    library = node.library or {}
    if not library:
        return ["its runtime has no NCCL from NVIDIA's wheel"]
    found = [hang(library)]
    release = numbers(library["version"] or "")
    if node.capability and node.capability not in library["runs"]:
        found.append(f"{_named(library)} has no code that compute capability {node.capability} can run")
    if ring and (release is None or release < RING):
        found.append(f"{_named(library)} is older than {_dotted(RING)}, which a ring requires")
    return [reason for reason in found if reason]


def choose(wanted: str, cluster: NcclInputs, nodes: Sequence[NcclNode]) -> Choice:
    """Return whether to build NCCL. ``wanted`` is nccl_sm121_build_enabled: auto, true or false."""
    if len(nodes) == 1:
        return Choice(build=False, final=True, why=("a single node does not need NCCL",))
    read = [node for node in nodes if node.library is not None and cluster.cuda]
    found = tuple(f"{node.name}: {reason}" for node in read for reason in reasons(node, cluster.ring))
    if wanted != AUTO:
        reason = f"nccl_sm121_build_enabled: {wanted}"
        more = patches.fixed(cluster.patches) if wanted == TRUE else found
        return Choice(wanted == TRUE, final=True, why=(reason, *more))
    if not cluster.cuda:
        return Choice(build=False, final=True, why=("this build of vLLM uses no GPU",))
    if cluster.container:
        return _by_release(
            cluster, final=bool(cluster.release), why="decided by the library in the image, which the head reads"
        )
    if not found and any(node.library is None for node in nodes):
        return _by_release(cluster, final=False, why="decided after installation, from the library itself")
    why = (*found, *patches.fixed(cluster.patches)) if found else _good(nodes, cluster.patches)
    return Choice(bool(found), final=True, why=why)


#: The last release whose source was read, and still has the faults of patches.KNOWN. On 2026-11-28 it was the newest.
READ = (2, 32, 3)


def known(release: Sequence[int] | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the known faults of a library that is not built, and the effect of a build with these patches."""
    where = "known in this release" if release is None or tuple(release) <= READ else f"known up to {_dotted(READ)}"
    change = "nccl_sm121_build_enabled=true builds it with the patch {}"
    without = "a build would not change it without the patch {} in nccl_sm121_build_patches"
    return tuple(
        f"{where}: {fault}. No report names a Spark. {(change if name in names else without).format(name)}"
        for name, fault in patches.KNOWN.items()
    )


def _good(nodes: Sequence[NcclNode], names: Sequence[str]) -> tuple[str, ...]:
    libraries = [node.library for node in nodes if node.library]
    arm = [numbers(library["version"] or "") for library in libraries if library["machine"] == _ARM]
    releases = sorted({_named(node.library) for node in nodes if node.library})
    gpus = sorted({node.capability for node in nodes if node.capability})
    code = f"has code for {', '.join(gpus) or 'the GPUs'}"
    good = f"{' and '.join(releases)} of the runtime has the fix of 2.29.3 for ARM, and {code}"
    return (good, *(known(min(filter(None, arm), default=None), names) if arm else ()))


def _by_release(cluster: NcclInputs, final: bool, why: str) -> Choice:
    """Decide by the release in the lock or the image: build if it is unknown or too old."""
    release = numbers(cluster.release)
    if release is None:
        return Choice(True, final, (why, "the NCCL release of the runtime is unknown", *patches.fixed(cluster.patches)))
    old = [f"older than {_dotted(HANG_FIXED)}"] if release < HANG_FIXED else []
    old += [f"older than {_dotted(RING)}, which a ring requires"] if cluster.ring and release < RING else []
    if old:
        reason = f"NCCL {cluster.release} is {' and '.join(old)}"
        return Choice(True, final, (why, reason, *patches.fixed(cluster.patches)))
    fixed = f"NCCL {cluster.release} has the fix of {_dotted(HANG_FIXED)} for ARM by its release"
    return Choice(False, final, (why, fixed, *known(release, cluster.patches)))


def _named(library: Mapping[str, Any]) -> str:
    return f"NCCL {library['version']}" if library["version"] else "an NCCL without a release number"


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
