# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether a cluster runs vLLM built from source. Equal inputs and facts give equal decisions in every run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import versions
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.common.spans import span
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import parse, plan, requirements
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import (
    AUTO,
    FALSE,
    MISSING,
    OFF,
    PUBLISHED,
    READY,
    UNDECIDED,
    WANTED,
    BuildNode,
    Choice,
    Item,
    Patch,
    Request,
)

#: The GPU code in an image cannot be read before the image is on the head; the role vllm_runtime runs small kernels
#: then.
_IN_IMAGE = (
    "the source is the stack's own release, and the GPU code in an image is not read; vllm_build_enabled: true "
    "builds it"
)
#: The repository of vLLM's releases. A fork can have a tag of the same name.
_REPOSITORY = "https://github.com/vllm-project/vllm"
_SHA256, _COMMIT = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")
_FORMS = {
    "patches": "a list of files",
    "capabilities": "a list, such as ['12.1']",
    "environment": "a mapping",
    "dependencies": "a list of {variable, archive, sha256}",
}
#: CMake's FETCHCONTENT_SOURCE_DIR_ has a dependency's name after it, such as VLLM-FLASH-ATTN.
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
#: The first GPUs with architecture-specific features, whose code vLLM's kernels use.
_OWN_FEATURES = 9


def check_request(request: Request, release: str, locked: bool) -> list[Problem]:
    """Return every problem of the user's variables.

    ``release`` is the stack's vLLM, ``locked`` whether there is a lock.
    """
    if request.wanted not in WANTED:
        return [Problem("vllm_build_enabled", repr(request.wanted), " or ".join(WANTED), "correct or remove it")]
    if request.wanted == FALSE:
        return []
    problems = []
    if not locked or not release:
        expected = "a stack or gb10_runtime_lock with the releases of vLLM and torch"
        fix = "set gb10_runtime_lock, or vllm_build_enabled: false"
        problems.append(Problem("vllm_build_enabled", "the runtime has no lock", expected, fix))
    if request.archive:
        problems += _check_sha256("vllm_build_checksum", request.checksum, "vllm_build_source")
    if not request.archive and not _COMMIT.fullmatch(request.commit):
        fix = f"set the 40 digits that git ls-remote {request.source} shows for {request.version or f'v{release}'}"
        problems.append(
            Problem("vllm_build_commit", repr(request.commit), "40 hexadecimal digits, because a tag can be moved", fix)
        )
    problems += [
        Problem(f"vllm_build_{name}", found, _FORMS[name], "correct it") for name, found in request.wrong.items()
    ]
    problems += _check_patches(request.patches)
    problems += _check_dependencies(request)
    for index, text in enumerate(request.capabilities):
        try:
            ComputeCapability.parse(text, f"vllm_build_capabilities[{index}]")
        except ProblemsError as error:
            problems += error.problems
    return problems


def _check_patches(patches: Sequence[Patch]) -> list[Problem]:
    problems, names = [], [patch.path.rpartition("/")[2] for patch in patches]
    for index, patch in enumerate(patches):
        path = f"vllm_build_patches[{index}]"
        if not patch.sha256:
            problems.append(
                Problem(path, f"{patch.path} cannot be read", "a patch file on the controller", f"correct {path}")
            )
        if names[index] in names[:index]:
            problems.append(
                Problem(
                    path,
                    f"a second {names[index]}",
                    "another name for each, because the head has them in one folder",
                    "rename it",
                )
            )
    return problems


def _check_sha256(path: str, digest: str, file: str) -> list[Problem]:
    fix = f"use the output of sha256sum for {file}"
    return (
        [] if _SHA256.fullmatch(digest) else [Problem(path, repr(digest), "64 hexadecimal digits in lower case", fix)]
    )


def _check_dependencies(request: Request) -> list[Problem]:
    """Return the problems of the dependencies and of the environment."""
    problems = []
    for name in request.environment:
        if not _VARIABLE.fullmatch(name):
            problems.append(
                Problem("vllm_build_environment", repr(name), "the name of a variable", "correct or remove it")
            )
    for index, dependency in enumerate(request.dependencies):
        path = f"vllm_build_dependencies[{index}]"
        if not _VARIABLE.fullmatch(dependency.variable):
            expected = "a variable of vLLM's CMake files, such as VLLM_CUTLASS_SRC_DIR"
            problems.append(Problem(f"{path}.variable", repr(dependency.variable), expected, "see docs/building.md"))
        if not dependency.archive:
            problems.append(Problem(f"{path}.archive", "''", "a tar file on the controller", "set it"))
        problems += _check_sha256(f"{path}.sha256", dependency.sha256, f"{path}.archive")
    return problems


def check_files(request: Request) -> list[Problem]:
    """Return the problems of the source and the dependencies as files on the controller.

    A build that is ready needs none.
    """
    files = (
        [("vllm_build_source", request.source, "vllm_build_checksum", request.checksum, request.found)]
        if request.archive
        else []
    )
    for index, given in enumerate(request.dependencies):
        path = f"vllm_build_dependencies[{index}]"
        files.append((f"{path}.archive", given.archive, f"{path}.sha256", given.sha256, given.found))
    problems = []
    for path, file, variable, expected, found in files:
        if not found:
            problems.append(Problem(path, f"{file} cannot be read", "a tar file on the controller", f"correct {path}"))
        elif found != expected:
            problems.append(
                Problem(
                    variable, f"{file} has sha256 {found}", expected, f"fetch the file again, or correct {variable}"
                )
            )
    return problems


def check_image(request: Request, release: str, torch: str, image: str, found: str) -> list[Problem]:
    """Return the problems of a build for a container image. ``found`` is the image's vLLM, "" if it was not queried.

    The build is installed without its dependencies, so the image must have the releases of the lock.
    """
    problems = []
    if request.separate:
        fix = "remove it; the one wheel has code for the GPUs of all nodes"
        problems.append(Problem("vllm_build_separate", "true", "false, because all nodes run the same image", fix))
    if not torch:
        expected, fix = "the torch of the image, for which the wheel is built", "add it with its hashes"
        problems.append(Problem("gb10_runtime_lock", "it pins no torch", expected, fix))
    if found and found != release:
        expected = (
            f"vLLM {release}, the release of gb10_runtime_lock, because the build keeps the image's other packages"
        )
        fix = "use an image with this release, or set gb10_runtime_lock to the releases of the image"
        problems.append(Problem("gb10_container_image", f"{image} has vLLM {found}", expected, fix))
    return problems


def architectures(capabilities: Sequence[str]) -> str:
    """Return TORCH_CUDA_ARCH_LIST for these GPUs: "11.0a;12.1a". GPUs before 9.0 have no code with own features."""
    gpus = sorted({ComputeCapability.parse(text) for text in capabilities})
    return ";".join(f"{gpu}a" if gpu.major >= _OWN_FEATURES else str(gpu) for gpu in gpus)


def key(request: Request) -> str:
    """Return the digest of the controller's inputs, which names the environment that has the build."""
    patches, others = (
        [patch.sha256 for patch in request.patches],
        sorted(f"{name}={value}" for name, value in request.environment.items()),
    )
    sources = [f"{dependency.variable} sha256 {dependency.sha256}" for dependency in request.dependencies]
    return _digest([request.identity, patches, list(request.capabilities), request.separate, *others, *sources])


def choose(
    request: Request, release: str, torch: str, device: str, nodes: Sequence[BuildNode], container: bool = False
) -> Choice:
    """Decide. ``release`` and ``torch`` are the lock's, ``device`` is cuda or cpu. Call check_request() before.

    The wheel for a ``container`` is needed on the first node only, the head, which installs it in the image of all
    nodes.
    """
    if request.wanted == FALSE:
        return Choice(OFF, ())
    own = own_source(request, release)
    if request.wanted == AUTO and not own:
        verdict = (PUBLISHED, (_IN_IMAGE,)) if container else _published(nodes, device)
        if verdict:
            return Choice(*verdict)
    why = own or ((f"vllm_build_enabled: {request.wanted}",) if request.wanted != AUTO else tuple(_gaps(nodes)))
    items = _items(request, release, torch, device, nodes, nodes[:1] if container else nodes)
    state = READY if all(_has(node, items) for node in nodes) else MISSING
    estimates = [_estimate(item, device, nodes[0]) for item in items if state == MISSING and not item.wheel]
    return Choice(state, (*why, *estimates), key(request), items, request.identity, request.archive)


def own_source(request: Request, release: str) -> tuple[str, ...]:
    """Return why the published wheel has another source than the request, () if it has the same one."""
    count = len(request.patches)
    found = ["1 patch changes the source" if count == 1 else f"{count} patches change the source"] if count else []
    if not request.archive and request.source.removesuffix("/").removesuffix(".git") != _REPOSITORY:
        found.append(f"vllm_build_source: {request.source} is not the repository of the releases")
    if not request.archive and request.version not in ("", f"v{release}"):
        found.append(f"vllm_build_version: {request.version} is not the release v{release} of the stack")
    if request.archive and f"-{release}." not in request.source.rpartition("/")[2]:
        found.append(
            f"vllm_build_source: {request.source.rpartition('/')[2]} is not the archive of the release {release}"
        )
    return tuple(found)


def _estimate(item: Item, device: str, head: BuildNode) -> str:
    """Return the sentence about the expected duration on the head, with its basis."""
    last = next((found for found in head.stored if found.seconds and found.jobs), None)
    if last:
        return (
            f"{item.name} is built on {head.name} in about {span(last.seconds)}, as the build {last.name} with "
            f"{last.jobs} compilers"
        )
    work = plan.CPU_SECONDS[device] * max(1, len(item.capabilities))
    basis = f"{work / 3600:.1f} CPU hours, measured on x86-64 (docs/benchmarks.md)"
    if not head.cores:
        return f"{item.name} is built on {head.name}: {basis}"
    jobs = plan.jobs_of(head.cores, head.memory, device)
    return f"{item.name} is built on {head.name} in about {span(work / jobs)} with {jobs} compilers: {basis}"


def _published(nodes: Sequence[BuildNode], device: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the state and the reason if the published wheel is used, None if a GPU cannot run its code."""
    if any(node.published is None for node in nodes):
        return UNDECIDED, ("decided after the installation of the published wheel, from its GPU code",)
    if _gaps(nodes):
        return None
    if device != "cuda":
        return PUBLISHED, ("the published wheel has no GPU code, and its source is the same",)
    return PUBLISHED, tuple(dict.fromkeys(_sufficient(node) for node in nodes if node.capability))


def _gaps(nodes: Sequence[BuildNode]) -> list[str]:
    return [
        f"{node.name}: the published wheel: {gap}"
        for node in nodes
        if node.capability and node.published
        for gap in coverage.gaps(node.published, node.capability, {})
    ]


def _sufficient(node: BuildNode) -> str:
    """Return the sentence about the published wheel's code for one node's GPU."""
    found = {name: counts for name, counts in (node.published or {}).items() if name.startswith("vllm/")}
    without = sorted(name for name, counts in found.items() if not coverage.runs(counts))
    with_code = (
        f"{len(found) - len(without)} of {len(found)} extensions of the published wheel have code that "
        f"{node.capability} runs"
    )
    return with_code + (f"; {', '.join(without)} have none" if without else "")


def _items(
    request: Request, release: str, torch: str, device: str, nodes: Sequence[BuildNode], stores: Sequence[BuildNode]
) -> tuple[Item, ...]:
    """Return the wheels: one for all nodes, or one for each kind of GPU. Only the nodes ``stores`` need their wheel."""
    if device != plan.CUDA:
        return (_item(request, release, torch, (), nodes, stores),)
    groups: dict[tuple[str, ...], list[BuildNode]] = {}
    every = tuple(sorted({node.capability for node in nodes if node.capability}, key=ComputeCapability.parse))
    for node in nodes:
        own = (node.capability,) if request.separate and node.capability else every
        groups.setdefault(tuple(request.capabilities) or own, []).append(node)
    return tuple(_item(request, release, torch, capabilities, group, stores) for capabilities, group in groups.items())


def _item(
    request: Request,
    release: str,
    torch: str,
    capabilities: tuple[str, ...],
    ranks: Sequence[BuildNode],
    stores: Sequence[BuildNode],
) -> Item:
    """Return the wheel of the nodes ``ranks``, which those among ``stores`` need as a file."""
    nodes = [node for node in ranks if node in stores]
    archs = architectures(capabilities)
    digest = _digest([key(request), archs, release, torch])
    name = f"{release}-{digest[:12]}"
    stored = next((found for node in nodes for found in node.stored if found.name == name), None)
    version = f"{release}+gb10.{digest[:8]}"
    names = tuple(node.name for node in nodes)
    driver = min(
        (node.cuda for node in ranks if versions.release(node.cuda)),
        key=lambda text: versions.release(text) or (),
        default="",
    )
    file = (stored.wheel, stored.sha256) if stored else ("", "")
    return Item(name, capabilities, archs, version, torch, names, *file, driver)


def _has(node: BuildNode, items: Sequence[Item]) -> bool:
    """Return whether a node has its wheel, with the hash that the others have. A node that needs none has it."""
    mine = next((item for item in items if node.name in item.nodes), None)
    return mine is None or any((found.name, found.sha256) == (mine.name, mine.sha256) for found in node.stored)


def digest_of_lock(lock: str, given: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return runtime_digest() before the cluster is planned, from the text of a lock and each node's vllm_build_info.

    Invalid variables count as no build; the plan reports them.
    """
    request, release = parse.request(given), requirements.version(lock, "vllm")
    own = hashlib.sha256(lock.encode()).hexdigest()
    if request.wanted == FALSE or check_request(request, release, bool(lock)):
        return own
    # The names of the wheels do not change the environment's name, so the builds do not count here.
    found = [
        BuildNode(str(index), str(node.get("capability") or ""), (), parse.published(node.get("published")))
        for index, node in enumerate(nodes)
    ]
    # The device changes only the words of the reasons, and the wheels.
    return runtime_digest(own, choose(request, release, "", "cpu", found))


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()


def runtime_digest(lock_digest: str, choice: Choice) -> str:
    """Return the digest that names the environment of a lock: its own, or another one for a build."""
    return _digest([lock_digest, choice.key]) if choice.built else lock_digest
