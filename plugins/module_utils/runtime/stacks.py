# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stacks: named bundles of compatible versions, and the versions in a lock file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.gb10.cluster.plugins.module_utils.common import similar
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: The first Ray with token authentication. Source: Ray documentation, "Ray security: token authentication".
TOKEN_RAY = (2, 52)
NATIVE, CONTAINER = "native", "container"
CUDA, CPU = "cuda", "cpu"


@dataclass(frozen=True)
class Stack:
    """A bundle. Unknown versions are empty.

    ``nccl`` is the tag to build for the GPU, ``bundled_nccl`` the release of PyPI's nvidia-nccl. ``lock`` is the
    requirements file in the role gb10, empty if the inventory has one; ``image`` is the container's.
    The ranks get ``environment``, which the model's and the user's values override. ``image_has_ray`` is None if
    unknown. ``exercised`` is the project's test evidence.
    """

    name: str
    vllm: str
    runtime: str = NATIVE
    device: str = CUDA
    cuda: int = 0
    torch: str = ""
    triton: str = ""
    transformers: str = ""
    ray: str = ""
    nccl: str = "v2.30.7-1"
    bundled_nccl: str = ""
    lock: str = ""
    image: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    image_has_ray: bool | None = None
    source: str = ""
    evidence: str = ""
    exercised: str = ""


#: The packages of a lock file that define a stack, by PyPI's names, and their fields.
_PACKAGES: Mapping[str, str] = {
    "vllm": "vllm",
    "torch": "torch",
    "triton": "triton",
    "transformers": "transformers",
    "ray": "ray",
    "nvidia-nccl-cu12": "bundled_nccl",
    "nvidia-nccl-cu13": "bundled_nccl",
}
#: A pin, or the address of a wheel, with the version after the name.
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?(?:==| @ \S*/\1-)([0-9][0-9A-Za-z.!]*)", re.MULTILINE)
#: The CUDA release of a lock's packages.
_CUDA = re.compile(r"^nvidia-nccl-cu(\d+)\b", re.MULTILINE)

_ALL = (
    Stack(
        "current",
        vllm="0.33.0",
        cuda=13,
        torch="2.14.0",
        triton="3.8.0",
        transformers="5.20.2",
        ray="2.60.0",
        bundled_nccl="2.30.7",
        lock="vllm-0.33.0-cu130-aarch64-py312.lock",
        source=(
            "the newest release whose sources were read; PyPI's wheels for aarch64 have sm_120f kernels, which "
            "12.1 runs"
        ),
        evidence="2026-11",
        exercised="the lock was resolved, never installed on a Spark; its sources were patched in the tests",
    ),
    Stack(
        "vllm-0.32.0",
        vllm="0.32.0",
        cuda=13,
        torch="2.13.0",
        triton="3.7.1",
        transformers="5.19.0",
        ray="2.60.0",
        bundled_nccl="2.29.7",
        lock="vllm-0.32.0-cu130-aarch64-py312.lock",
        source="the previous release; PyPI's wheels for aarch64 have sm_120f kernels, which 12.1 runs",
        evidence="2026-11",
        exercised="the lock was resolved, never installed on a Spark; the same release's CPU build serves in the lab",
    ),
    Stack(
        "vllm-0.18.1",
        vllm="0.18.1",
        cuda=12,
        torch="2.10.0",
        triton="3.6.0",
        transformers="4.57.6",
        ray="2.55.0",
        bundled_nccl="2.27.5",
        lock="vllm-0.18.1-cu129-aarch64-py312.lock",
        source="vllm-gb10: the versions that its installer pins on every node; "
        "its NCCL v2.28.9-1 lacks the fix of the hang on ARM (NVIDIA/nccl#2353)",
        evidence="2026-06",
        exercised="the lock was resolved, never installed on a Spark; its sources were patched in the tests",
    ),
    Stack(
        "vllm-openai-0.28.0",
        vllm="0.28.0",
        runtime=CONTAINER,
        cuda=13,
        torch="2.13.0",
        bundled_nccl="2.30.7",
        image="vllm/vllm-openai@sha256:61fc8a896b0a4fbbbdc063bc4b0dbc25ce98e02b5050c24aeb7830ac02039b14",
        image_has_ray=False,
        source="vLLM's image v0.28.0: NVIDIA measured recipes for Sparks with this digest (2026-09-03, "
        "driver 580.159.03 and 580.173.02). NCCL: vLLM's docker/versions.json; vLLM's images have no Ray since 0.20",
        evidence="2026-09",
        exercised="nothing: the image was never pulled",
    ),
    Stack(
        "ngc-26.10",
        vllm="0.31.0",
        runtime=CONTAINER,
        cuda=13,
        torch="2.15.0a0",
        transformers="5.17.0",
        image="nvcr.io/nvidia/vllm:26.10-py3",
        source="NVIDIA's release notes for 26.10 (CUDA 13.4.3, FlashInfer 0.7.1rc5), which name neither NCCL nor Ray. "
        "No public source has the digest; site.yml pins it at the first pull. NVIDIA's recipe of Qwen3.8-27B for one "
        "Spark uses 26.10.pre1 (2026-10-19)",
        evidence="2026-10",
        exercised="nothing: the image was never pulled",
    ),
    Stack(
        "ngc-26.04",
        vllm="0.19.0",
        runtime=CONTAINER,
        cuda=13,
        image="nvcr.io/nvidia/vllm:26.04-py3",
        environment={
            "VLLM_USE_FLASHINFER_MOE_FP4": "0",
            "VLLM_MARLIN_USE_ATOMIC_ADD": "1",
            "NCCL_NET_PLUGIN": "none",
            "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas",
            "TRITON_PTXAS_BLACKWELL_PATH": "/usr/local/cuda/bin/ptxas",
        },
        image_has_ray=False,
        source="the reference of two Sparks with NVIDIA's container (conselara.dev), which runs Ray of unknown origin; "
        "makiisthenes/dgx-spark-multinode-vllm-ray found no Ray in the image",
        evidence="2026-05",
        exercised="nothing: the image was never pulled",
    ),
    Stack(
        "lab",
        vllm="0.32.0",
        device=CPU,
        torch="2.13.0",
        transformers="5.19.0",
        ray="2.60.0",
        source="inventories/lab: vLLM's CPU build on simulated hosts",
        evidence="2026-11",
        exercised="every test of this project that serves a model",
    ),
)
STACKS: Mapping[str, Stack] = {stack.name: stack for stack in _ALL}


def table() -> str:
    """Return all stacks as the table of docs/stacks.md."""
    versions = ("vllm", "cuda", "torch", "triton", "transformers", "ray", "bundled_nccl", "nccl")
    lines = [
        (
            f"| stack | runtime | {' | '.join(versions)} | lock or image | served with | source | evidence | "
            "exercised on |"
        ),
        "|---|---|" + "--:|" * len(versions) + "---|---|---|--:|---|",
    ]
    for stack in _ALL:
        cells = [str(getattr(stack, field) or "") for field in versions]
        where = stack.lock or stack.image or "the inventory's"
        served = ", ".join(f"`{name}={value}`" for name, value in stack.environment.items())
        history = (where, served, stack.source, stack.evidence, stack.exercised)
        lines.append(f"| `{stack.name}` | {stack.runtime} | {' | '.join(cells)} | {' | '.join(history)} |")
    return "\n".join(lines) + "\n"


def named(name: str) -> tuple[Stack, list[Problem]]:
    """Return the stack with a name, and the problems of the name."""
    if name in STACKS:
        return STACKS[name], []
    close = similar.close(name, STACKS)
    fix = f"use {close[0]}" if close else "correct gb10_stack"
    return _ALL[0], [Problem("gb10_stack", repr(name), f"one of {', '.join(STACKS)}", fix)]


def resolve(name: str, lock: str, path: str, runtime: str = "", image: str = "") -> tuple[Stack, list[Problem]]:
    """Return the stack to run, and all problems; ``lock`` is the text of a lock file, ``path`` its name for messages.

    ``runtime`` and ``image`` override the stack's. The lock's versions win, because they are installed. The stack has
    the rest, such as the NCCL to build. A container needs no lock: there it only lists the versions in the image.
    """
    stack, problems = named(name)
    if problems:
        # The same report lists the problems of the lock's versions.
        return _pinned(stack, lock), problems
    stack = _overridden(stack, runtime, image)
    if stack.runtime == CONTAINER and not stack.image:
        found = f"none is given, and the stack {name} has none"
        problems.append(
            Problem(
                "gb10_container_image",
                found,
                "an image by its digest, such as vllm/vllm-openai@sha256:...",
                "set gb10_container_image",
            )
        )
    # An explicit native runtime replaces an image of the same inventory.
    if image and not runtime and stack.runtime != CONTAINER:
        fix = "set gb10_runtime: container, or remove gb10_container_image"
        problems.append(Problem("gb10_container_image", "it has no effect without a container", "gb10_runtime", fix))
    if not lock and (stack.runtime != CONTAINER or path):
        return stack, [*problems, _unlocked(name, path)]
    if lock and "vllm" not in locked(lock):
        fix = "add it, or use another lock"
        problems.append(Problem("gb10_runtime_lock", f"{path} pins no vllm", "a line such as vllm==0.32.0", fix))
    return _pinned(stack, lock), problems


def _pinned(stack: Stack, lock: str) -> Stack:
    """Return the stack with the versions that a lock pins."""
    pins, cuda = locked(lock), _CUDA.search(lock)
    versions = {field: pins.get(field, getattr(stack, field)) for field in _PACKAGES.values()}
    return replace(stack, **versions, cuda=int(cuda[1]) if cuda else stack.cuda)


def _overridden(stack: Stack, runtime: str, image: str) -> Stack:
    """Return the stack with another runtime or image, "" to keep it. Only a container has an image."""
    kind = runtime or stack.runtime
    if kind != CONTAINER:
        return replace(stack, runtime=kind, image="", image_has_ray=None)
    used = image or stack.image
    # The stack's knowledge applies only to its own image; a digest after the name is still the same image.
    ray = stack.image_has_ray if stack.image in (used, used.partition("@")[0]) else None
    return replace(stack, runtime=kind, image=used, image_has_ray=ray)


def check_ray(version: str, path: str) -> list[Problem]:
    """Return the problems of a Ray version, "" if unknown. Without tokens, every host on the network could run code."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found or (int(found[1]), int(found[2])) >= TOKEN_RAY:
        return []
    fix = "use a release of vLLM for that Ray, or gb10_distributed_executor_backend: mp"
    problem = f"Ray {version} has no RAY_AUTH_MODE, so every host on the network could run code"
    return [Problem(path, problem, "Ray 2.52 or newer", fix)]


def _unlocked(name: str, path: str) -> Problem:
    fix = "correct gb10_runtime_lock" if path else f"set gb10_runtime_lock, because {name} has none"
    return Problem(
        "gb10_runtime_lock",
        f"{path!r} is not a readable file on the controller",
        "a requirements file with exact versions",
        fix,
    )


def locked(text: str) -> dict[str, str]:
    """Return field of a Stack -> version, for the packages that a requirements file pins.

    A local part such as ``+cpu`` is dropped: it names the build, not the release.
    """
    pins = {name.lower().replace("_", "-"): version for name, version in _PIN.findall(text)}
    return {field: pins[package] for package, field in _PACKAGES.items() if package in pins}
