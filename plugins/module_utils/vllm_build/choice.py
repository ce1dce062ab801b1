# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the build of a cluster, and decide whether each node has it. Equal inputs and facts give equal results.

``given`` are the role's variables in the types of its specification, without their prefix. ``patches``: {path, sha256}
of each, with "" for a file that cannot be read. ``archives``: the SHA-256 of each archive on the controller, by path.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import versions
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import plan, schema
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Choice, Stored

_COMMIT = re.compile("[0-9a-f]{40}")
#: CMake's FETCHCONTENT_SOURCE_DIR_ has a dependency's name after it, such as VLLM-FLASH-ATTN.
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
#: Whether a value is wrong, and the texts of its Problem; the path has no prefix.
Row = tuple[object, str, str, str, str]
Given = Mapping[str, Any]


def archive(given: Given) -> bool:
    """Return whether the source is a tar file on the controller, not a git repository."""
    return str(given["source"]).endswith((".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".tgz"))


def identity(given: Given) -> str:
    """Return the exact source: "commit 73cf…" or "sha256 e672…"."""
    return f"sha256 {given['checksum']}" if archive(given) else f"commit {given['commit']}"


def check_request(given: Given, release: str, locked: bool) -> list[Problem]:
    """Return every problem of the user's variables.

    ``release`` is the stack's vLLM, ``locked`` whether there is a lock.
    """
    if not given["enabled"]:
        return []
    names = [patch["path"].rpartition("/")[2] for patch in given["patches"]]
    tag = f"git ls-remote {given['source']} shows for {given['version'] or f'v{release}'}"
    rows: list[Row] = [
        (
            not locked or not release,
            "enabled",
            "the runtime has no lock",
            "a stack or gb10_runtime_lock with the releases of vLLM and torch",
            "set gb10_runtime_lock, or vllm_build_enabled: false",
        ),
        (
            not archive(given) and not _COMMIT.fullmatch(given["commit"]),
            "commit",
            repr(given["commit"]),
            "40 hexadecimal digits, because a tag can be moved",
            f"set the 40 digits that {tag}",
        ),
        *([_digits("checksum", given["checksum"], "vllm_build_source")] if archive(given) else []),
        *(row for index, patch in enumerate(given["patches"]) for row in _patch(index, patch, names)),
        *(row for index, each in enumerate(given["dependencies"]) for row in _dependency(index, each)),
        *(
            (not _VARIABLE.fullmatch(name), "environment", repr(name), "the name of a variable", "correct it")
            for name in given["environment"]
        ),
    ]
    problems = _problems(rows)
    for index, text in enumerate(given["capabilities"]):
        try:
            ComputeCapability.parse(text, f"vllm_build_capabilities[{index}]")
        except ProblemsError as error:
            problems += error.problems
    return problems


def _patch(index: int, patch: Mapping[str, str], names: Sequence[str]) -> list[Row]:
    path, one_folder = f"patches[{index}]", "another name for each, because the head has them in one folder"
    return [
        (not patch["sha256"], path, f"{patch['path']} cannot be read", "a patch file on the controller", "correct it"),
        (names[index] in names[:index], path, f"a second {names[index]}", one_folder, "rename it"),
    ]


def _digits(path: str, digest: str, file: str) -> Row:
    expected, fix = "64 hexadecimal digits in lower case", f"use the output of sha256sum for {file}"
    return (not schema.SHA256.fullmatch(digest), path, repr(digest), expected, fix)


def _dependency(index: int, given: Mapping[str, str]) -> list[Row]:
    path, variable = f"dependencies[{index}]", given["variable"]
    expected = "a variable of vLLM's CMake files, such as VLLM_CUTLASS_SRC_DIR"
    return [
        (not _VARIABLE.fullmatch(variable), f"{path}.variable", repr(variable), expected, "see docs/building.md"),
        _digits(f"{path}.sha256", given["sha256"], f"vllm_build_{path}.archive"),
    ]


def check_files(given: Given) -> list[Problem]:
    """Return the problems of the source and the dependencies as files on the controller.

    A build that is ready needs none.
    """
    files = [("source", given["source"], "checksum", given["checksum"])] if archive(given) else []
    files += [
        (f"dependencies[{index}].archive", each["archive"], f"dependencies[{index}].sha256", each["sha256"])
        for index, each in enumerate(given["dependencies"])
    ]
    problems = []
    for path, file, variable, expected in files:
        found = given["archives"].get(file, "")
        if not found:
            text, tar = f"{file} cannot be read", "a tar file on the controller"
            problems.append(Problem(f"vllm_build_{path}", text, tar, "correct it"))
        elif found != expected:
            text, fix = f"{file} has sha256 {found}", "fetch the file again, or correct the hash"
            problems.append(Problem(f"vllm_build_{variable}", text, expected, fix))
    return problems


def _problems(rows: Iterable[Row], prefix: str = "vllm_build_") -> list[Problem]:
    return [Problem(f"{prefix}{path}", *texts) for wrong, path, *texts in rows if wrong]


def check_image(release: str, torch: str, image: str, found: str) -> list[Problem]:
    """Return the problems of a build for a container image. ``found`` is the image's vLLM, "" if it was not queried.

    The build is installed without its dependencies, so the image must have the releases of the lock.
    """
    wanted = f"vLLM {release}, the release of gb10_runtime_lock, because the build keeps the image's other packages"
    fix = "use an image with this release, or set gb10_runtime_lock to the releases of the image"
    built_for = "the torch of the image, for which the wheel is built"
    rows: list[Row] = [
        (not torch, "runtime_lock", "it pins no torch", built_for, "add it with its hashes"),
        (found not in ("", release), "container_image", f"{image} has vLLM {found}", wanted, fix),
    ]
    return _problems(rows, "gb10_")


def key(given: Given) -> str:
    """Return the digest of the controller's inputs, which names the environment that has the build."""
    patches = [patch["sha256"] for patch in given["patches"]]
    others = sorted(f"{name}={value}" for name, value in given["environment"].items())
    sources = [f"{each['variable']} sha256 {each['sha256']}" for each in given["dependencies"]]
    # False was the choice of one wheel for each kind of GPU. It keeps the names of older builds.
    return _digest([identity(given), patches, list(given["capabilities"]), False, *others, *sources])


def choose(
    given: Given,
    releases: tuple[str, str],
    capabilities: Collection[str] | None,
    drivers: Collection[str],
    stores: Mapping[str, Sequence[Stored]],
) -> Choice:
    """Decide. ``releases`` of vLLM and torch are the lock's. Call check_request() before.

    ``capabilities``: of all known GPUs, None for a build for CPUs. ``drivers``: the newest CUDA release that the driver
    of each node supports ("13.0"), "" if unknown. ``stores``: the builds of each node that needs the wheel.
    """
    if not given["enabled"]:
        return Choice(schema.OFF)
    known = tuple(sorted(set(capabilities or ()), key=ComputeCapability.parse))
    gpus = () if capabilities is None else tuple(given["capabilities"]) or known
    archs, (release, torch) = plan.architectures(gpus), releases
    name = f"{release}-{_digest([key(given), archs, release, torch])[:12]}"
    builds = [next((found for found in stored if found["name"] == name), {}) for stored in stores.values()]
    first = next(filter(None, builds), {"wheel": "", "sha256": ""})
    ready = all(found.get("sha256") == first["sha256"] for found in builds)
    source = f"{given['source'].rpartition('/')[2]} {identity(given)} for {archs or 'CPUs'}"
    patches = ", ".join(patch["path"].rpartition("/")[2] for patch in given["patches"])
    return Choice(
        state=schema.READY if ready else schema.MISSING,
        why=(source, *([f"patches: {patches}"] if patches else [])),
        key=key(given),
        name=name,
        capabilities=gpus,
        torch=torch,
        nodes=tuple(stores),
        wheel=first["wheel"],
        sha256=first["sha256"],
        driver=_oldest(drivers),
        identity=identity(given),
    )


def _oldest(drivers: Iterable[str]) -> str:
    numbers = [(number, driver) for driver in drivers if (number := versions.release(driver))]
    return min(numbers)[1] if numbers else ""


def digest_of_lock(lock: str, given: Given) -> str:
    """Return runtime_digest() before the cluster is planned, from the text of a lock.

    Invalid variables count as no build; the plan reports them.
    """
    release = stacks.locked(lock).get("vllm", "")
    built = given["enabled"] and not check_request(given, release, bool(lock))
    return runtime_digest(hashlib.sha256(lock.encode()).hexdigest(), key(given) if built else "")


def runtime_digest(lock_digest: str, build: str) -> str:
    """Return the digest that names the environment of a lock: its own, or another one for the ``key`` of a build."""
    return _digest([lock_digest, build]) if build else lock_digest


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()
