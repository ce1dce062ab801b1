# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of NCCL, packages, vLLM's files, images, variables and Ray's nodes."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify.existing import of_rule
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import ERROR, WARNING, Check, Cluster, Found

_FILE = "cluster.env"
#: Files that a finding names.
_SHOWN = 5


def _mapped(cluster: Cluster) -> Iterator[Found]:
    for node in cluster.read:
        # The paths in a container are not those of the host.
        if node.facts.get("images") or not node.facts.get("runtime") or node.facts["runtime"].startswith("/proc/"):
            continue
        installed = node.part("nccl_installed")
        for process in node.facts.get("nccl") or ():
            others = [
                each["path"]
                for each in differences.used_libraries(process)
                if each["sha256"] != installed.get("sha256")
            ]
            if others:
                expected = f"instead of {installed['path']}" if installed else "but the runtime has none"
                yield node.name, f"{process['name']} (pid {process['pid']}) uses {', '.join(others)}, {expected}"


def _changed_build(cluster: Cluster) -> Iterator[Found]:
    for node in cluster.read:
        installed = node.part("nccl_installed")
        if installed.get("recorded") and installed["recorded"] != installed["sha256"]:
            yield node.name, f"{installed['path']} differs from the installed build"


def _changed_files(cluster: Cluster) -> Iterator[Found]:
    for node in cluster.read:
        for state in ("changed", "missing"):
            if files := node.part("files").get(state):
                more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
                yield node.name, f"{state} in {node.facts['runtime']}: {', '.join(files[:_SHOWN])}{more}"


def _stale(cluster: Cluster) -> Iterator[Found]:
    for node in cluster.read:
        environments = node.part("environments")
        for source, variables in environments.items():
            wrong = [
                name
                for name, value in environments.get(_FILE, {}).items()
                if source != _FILE and variables.get(name) != value
            ]
            if wrong:
                yield node.name, f"{source} runs with other values of {', '.join(wrong)} than /etc/gb10/{_FILE}"


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

CHECKS = (
    of_rule("nccl-arm-hang", "nccl"),
    Check(
        "nccl-mapped",
        "nccl",
        ERROR,
        "each rank uses the library that the runtime installs or preloads",
        "another build hangs or is slower, and its version number does not show that",
        "restart the ranks; remove VLLM_NCCL_SO_PATH, LD_PRELOAD and LD_LIBRARY_PATH if they name another library",
        "vllm-project/vllm#42354 (two builds of one version: one hangs)",
        _mapped,
    ),
    Check(
        "nccl-differs",
        "nccl",
        ERROR,
        "the same NCCL in the ranks of all nodes",
        "ranks with different builds choose different algorithms, and hang or fail at the first collective",
        "run site.yml --tags nccl_sm121_build, then restart the ranks",
        "NVIDIA/nccl, documentation (all ranks must use one version)",
        lambda cluster: differences.found("nccl-differs", cluster),
    ),
    Check(
        "nccl-build-changed",
        "nccl",
        ERROR,
        "the digest of the build that the role nccl_sm121_build installed",
        "the library was replaced or damaged after its installation",
        "run site.yml --tags nccl_sm121_build",
        "the record of the role nccl_sm121_build",
        _changed_build,
    ),
    Check(
        "libcuda-differs",
        "nccl",
        WARNING,
        "the same libcuda in the ranks of all nodes",
        "a compatibility package or an old library hides the driver's own libcuda on one node",
        "remove cuda-compat from LD_LIBRARY_PATH, and install the same driver on all nodes",
        "NVIDIA, CUDA compatibility",
        lambda cluster: differences.found("libcuda-differs", cluster),
    ),
    Check(
        "packages-differ",
        "runtime",
        ERROR,
        "the same releases of vLLM, PyTorch, Ray, FlashInfer and NCCL on all nodes",
        "ranks exchange pickled objects and choose kernels by their release; they fail, or return wrong answers",
        "run site.yml --tags vllm_runtime, which installs the lock file on all nodes",
        "vLLM, documentation of distributed serving (the same environment on all nodes)",
        lambda cluster: differences.found("packages-differ", cluster),
    ),
    Check(
        "files-changed",
        "runtime",
        ERROR,
        "vLLM's Python files as in the wheel, or as the role vllm_patch wrote them",
        "a file was edited by hand or damaged, so that the rank runs unknown code",
        _REINSTALL,
        "the RECORD of the wheel",
        _changed_files,
    ),
    Check(
        "patches-differ",
        "runtime",
        ERROR,
        "the same patched files of vLLM on all nodes",
        "ranks choose different kernels, and hang or return wrong answers",
        _REINSTALL,
        "the records of the role vllm_patch",
        lambda cluster: differences.found("patches-differ", cluster),
    ),
    Check(
        "image-differs",
        "runtime",
        ERROR,
        "the same image ID on all nodes",
        "nodes that pull one tag at different times run different software",
        "run site.yml --tags vllm_runtime, which copies the head's image",
        "eugr/spark-vllm-docker#226, #296",
        lambda cluster: differences.found("image-differs", cluster),
    ),
    of_rule("environment-differs", "runtime", lambda cluster: differences.found("environment-differs", cluster)),
    Check(
        "environment-stale",
        "runtime",
        WARNING,
        "each service runs with the variables of /etc/gb10/cluster.env",
        "the file was changed after the start, so that the next start differs from the running one",
        _RESTART,
        "module_utils/launch/io_gates.py",
        _stale,
    ),
    Check(
        "ray-node-missing",
        "runtime",
        ERROR,
        "Ray lists each node of the inventory, and no other, as alive",
        "the next start waits for the missing node, or runs ranks on an unknown one",
        "run site.yml --tags ray_cluster; read journalctl -u gb10-ray on the node",
        "Ray, State API",
        _ray_nodes,
    ),
)
