# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of NCCL, packages, vLLM's files, images, variables and Ray's nodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, RUNNING, WARNING, Check, Found
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify.existing import of_rule
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import (
    RECORDED,
    Cluster,
    VerifiedNode,
    of_nodes,
)

_FILE = "cluster.env"
#: Files that a finding names.
_SHOWN = 5


@of_nodes
def _mapped(node: VerifiedNode) -> Iterator[str]:
    # The paths in a container are not those of the host.
    if node.facts.get("images") or not node.facts.get("runtime") or node.facts["runtime"].startswith("/proc/"):
        return
    installed = node.part("nccl_installed")
    expected = f"instead of {installed['path']}" if installed else "but the runtime has none"
    for process in node.facts.get("nccl") or ():
        used = differences.used_libraries(process)
        if others := [each["path"] for each in used if each["sha256"] != installed.get("sha256")]:
            yield f"{process['name']} (pid {process['pid']}) uses {', '.join(others)}, {expected}"


@of_nodes
def _changed_build(node: VerifiedNode) -> Iterator[str]:
    library = node.part("nccl_installed")
    if library.get("recorded") and library["recorded"] != library["sha256"]:
        yield f"{library['path']} differs from the installed build"


@of_nodes
def _changed_files(node: VerifiedNode) -> Iterator[str]:
    for state in ("changed", "missing"):
        if files := node.part("files").get(state):
            more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
            yield f"{state} in {node.facts['runtime']}: {', '.join(files[:_SHOWN])}{more}"


@of_nodes
def _stale(node: VerifiedNode) -> Iterator[str]:
    environments = dict(node.part("environments"))
    written = environments.pop(_FILE, {})
    for source, variables in environments.items():
        if wrong := [name for name, value in written.items() if variables.get(name) != value]:
            yield f"{source} runs with other values of {', '.join(wrong)} than /etc/gb10/{_FILE}"


def _ray_nodes(cluster: Cluster) -> Iterator[Found]:
    for head in (node for node in cluster.read if node.head and node.part("ray").get("nodes") is not None):
        alive = {row["address"] for row in head.facts["ray"]["nodes"] if row["alive"]}
        known = {node.name: node.addresses for node in cluster.read}
        yield from (
            (name, "Ray lists no living node with an address of this node") for name in known if not known[name] & alive
        )
        others = alive.difference(*known.values()) if len(known) == len(cluster.nodes) else set()
        yield from (
            (head.name, f"Ray lists {address}, which no node of the inventory has") for address in sorted(others)
        )


_RESTART = "run site.yml, which restarts the services whose inputs changed"
_REINSTALL = "run site.yml --tags vllm_runtime,vllm_patch; reinstall the environment if the difference stays"

_nccl = partial(Check[Cluster], RUNNING, topic="nccl", tested=RECORDED)
_runtime = partial(Check[Cluster], RUNNING, topic="runtime", tested=RECORDED)

CHECKS = (
    of_rule("nccl-arm-hang", "nccl"),
    _nccl(
        "nccl-mapped",
        ERROR,
        expected="each rank uses the library that the runtime installs or preloads",
        why="another build hangs or is slower, and its version number does not show that",
        fix="restart the ranks; remove VLLM_NCCL_SO_PATH, LD_PRELOAD and LD_LIBRARY_PATH if they name another library",
        source="vllm-project/vllm#42354 (two builds of one version: one hangs)",
        detect=_mapped,
    ),
    _nccl(
        "nccl-differs",
        ERROR,
        expected="the same NCCL in the ranks of all nodes",
        why="ranks with different builds choose different algorithms, and hang or fail at the first collective",
        fix="run site.yml --tags nccl_sm121_build, then restart the ranks",
        source="NVIDIA/nccl, documentation (all ranks must use one version)",
        detect=partial(differences.found, "nccl-differs"),
    ),
    _nccl(
        "nccl-build-changed",
        ERROR,
        expected="the digest of the build that the role nccl_sm121_build installed",
        why="the library was replaced or damaged after its installation",
        fix="run site.yml --tags nccl_sm121_build",
        source="the record of the role nccl_sm121_build",
        detect=_changed_build,
    ),
    _nccl(
        "libcuda-differs",
        WARNING,
        expected="the same libcuda in the ranks of all nodes",
        why="a compatibility package or an old library hides the driver's own libcuda on one node",
        fix="remove cuda-compat from LD_LIBRARY_PATH, and install the same driver on all nodes",
        source="NVIDIA, CUDA compatibility",
        detect=partial(differences.found, "libcuda-differs"),
    ),
    _runtime(
        "packages-differ",
        ERROR,
        expected="the same releases of vLLM, PyTorch, Ray, FlashInfer and NCCL on all nodes",
        why="ranks exchange pickled objects and choose kernels by their release; they fail, or return wrong answers",
        fix="run site.yml --tags vllm_runtime, which installs the lock file on all nodes",
        source="vLLM, documentation of distributed serving (the same environment on all nodes)",
        detect=partial(differences.found, "packages-differ"),
    ),
    _runtime(
        "files-changed",
        ERROR,
        expected="vLLM's Python files as in the wheel, or as the role vllm_patch wrote them",
        why="a file was edited by hand or damaged, so that the rank runs unknown code",
        fix=_REINSTALL,
        source="the RECORD of the wheel",
        detect=_changed_files,
    ),
    _runtime(
        "patches-differ",
        ERROR,
        expected="the same patched files of vLLM on all nodes",
        why="ranks choose different kernels, and hang or return wrong answers",
        fix=_REINSTALL,
        source="the records of the role vllm_patch",
        detect=partial(differences.found, "patches-differ"),
    ),
    _runtime(
        "image-differs",
        ERROR,
        expected="the same image ID on all nodes",
        why="nodes that pull one tag at different times run different software",
        fix="run site.yml --tags vllm_runtime, which copies the head's image",
        source="eugr/spark-vllm-docker#226, #296",
        detect=partial(differences.found, "image-differs"),
    ),
    of_rule("environment-differs", "runtime", partial(differences.found, "environment-differs")),
    _runtime(
        "environment-stale",
        WARNING,
        expected="each service runs with the variables of /etc/gb10/cluster.env",
        why="the file was changed after the start, so that the next start differs from the running one",
        fix=_RESTART,
        source="module_utils/launch/io_gates.py",
        detect=_stale,
    ),
    _runtime(
        "ray-node-missing",
        ERROR,
        expected="Ray lists each node of the inventory, and no other, as alive",
        why="the next start waits for the missing node, or runs ranks on an unknown one",
        fix="run site.yml --tags ray_cluster; read journalctl -u gb10-ray on the node",
        source="Ray, State API",
        detect=_ray_nodes,
    ),
)
