# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layers on a container image: folders with a run.sh (mods), Python packages, and a wheel that the head built.

One build for each content hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

VARIABLE = "gb10_image_layers"
#: The names of built images and of the image below them. No registry can have them.
BUILT, BASE = "localhost/gb10-layers", "localhost/gb10-base"
#: The folder inside the image; mods of eugr/spark-vllm-docker expect it.
_INSIDE = "/workspace/mods"
#: The link to the working folder of an image with a mod.
WORKSPACE = "/workspace/working-folder"
#: The folder of a wheel inside the image. A mount would not leave the file there, but older builders have none.
_WHEELS = "/workspace/wheels"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
#: A pinned package: another release must be another image.
_PIN = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?==[\w.!+-]+", re.ASCII)
_KEYS = ("path", "packages", "network")
#: The layer's folder in the build's context.
FOLDER = "layer"
#: Images have their own environment, which Debian's marker would protect.
_PIP = ("-m", "pip", "install", "--no-cache-dir", "--break-system-packages")
#: The image has the dependencies of the same release. Without --isolated, an image's PIP_CONSTRAINT could refuse the
#: wheel.
_REPLACE = ("--isolated", "--no-deps", "--no-index", "--force-reinstall")

#: A program that prints the releases in an image. It imports neither vLLM nor torch.
RELEASES = """\
import importlib.metadata, json, sys
found = {name: [each.version for each in importlib.metadata.distributions(name=name)] for name in ("vllm", "torch")}
releases = {name: str(each[0]).partition("+")[0] if each else "none" for name, each in found.items()}
print(json.dumps({**releases, "python": "cp{}{}".format(*sys.version_info)}))
"""
_ID = re.compile(r"[0-9a-f]{64}")
#: Characters of the output, and of a shown release.
_MOST_RELEASES, _MOST_RELEASE = 1 << 12, 40


def release_problems(image: str, printed: str, vllm: str, torch: str, wheel: str) -> list[Problem]:
    """Return why a built wheel cannot replace the vLLM of an image. ``printed``: what RELEASES printed in the image.

    ``vllm`` and ``torch``: the releases of the wheel, whose file name is ``wheel``. Raises ValueError for another
    output, which is untrusted.
    """
    try:
        found = bounded_json.load((printed.splitlines() or [""])[-1], _MOST_RELEASES)
    except ValueError as error:
        raise ValueError(f"{image} printed no releases: {error}") from error
    if not isinstance(found, Mapping):
        raise ValueError(f"{image} printed no releases")
    tags = ("-abi3-", "-none-", f"-{found.get('python')}-")
    if (found.get("vllm"), found.get("torch")) == (vllm, torch) and any(tag in wheel for tag in tags):
        return []
    releases = {name: repr(found.get(name))[:_MOST_RELEASE].strip("'") for name in ("vllm", "torch", "python")}
    text = f"{image} has vLLM {releases['vllm']}, torch {releases['torch']} and Python {releases['python']}"
    wanted = f"vLLM {vllm} and torch {torch}, the releases of gb10_runtime_lock, and a Python for {wheel}"
    fix = "use an image with these releases, or set gb10_runtime_lock to the releases of the image"
    return [Problem("gb10_container_image", text, wanted, fix)]


def is_id(text: str) -> bool:
    """Return whether a text is the ID of an image, without a prefix."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True)
class Layer:
    """A layer. ``folder``: on the controller, "" for packages and wheels; ``network``: whether its script may use one.

    ``digest``: of its files. ``wheel``: a path on the head, whose SHA-256 is the digest, or "".
    """

    name: str
    folder: str
    digest: str
    packages: tuple[str, ...]
    network: bool
    wheel: str = ""


@dataclass(frozen=True)
class Build:
    """The build of one layer: ``image`` from ``containerfile``, which starts from the name ``base_name`` of ``base``.

    ``wheel`` is a path on the head, and ``sha256`` its hash, both "" for other layers.
    """

    name: str
    folder: str
    network: bool
    image: str
    base: str
    base_name: str
    containerfile: str
    wheel: str
    sha256: str


def check(given: Any) -> list[Problem]:
    """Return every problem in ``gb10_image_layers``."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [Problem(VARIABLE, repr(given), "a list of layers", "write [{path: FOLDER}]")]
    return [problem for index, layer in enumerate(given) for problem in _check(layer, f"{VARIABLE}[{index}]")]


def _check(layer: Any, path: str) -> list[Problem]:
    if not isinstance(layer, Mapping) or set(layer) - set(_KEYS):
        return [Problem(path, repr(layer)[:200], f"a mapping with {', '.join(_KEYS)}", f"correct {path}")]
    problems = []
    if ("path" in layer) == ("packages" in layer):
        problems.append(Problem(path, "it has path and packages, or neither", "one of the two", "write two layers"))
    if "path" in layer and not (
        isinstance(layer["path"], str) and _NAME.fullmatch(layer["path"].rstrip("/").rpartition("/")[2])
    ):
        problems.append(
            Problem(f"{path}.path", repr(layer["path"]), "a folder on the controller", f"correct {path}.path")
        )
    pins = layer.get("packages", [])
    if not isinstance(pins, list) or not all(isinstance(pin, str) and _PIN.fullmatch(pin) for pin in pins):
        problems.append(
            Problem(
                f"{path}.packages",
                repr(pins)[:200],
                "a list of releases, such as [ray==2.60.0]",
                f"correct {path}.packages",
            )
        )
    if not isinstance(layer.get("network", False), bool):
        problems.append(Problem(f"{path}.network", repr(layer["network"]), "true or false", f"correct {path}.network"))
    return problems


def builds(base: str, layers: Sequence[Layer], python: str) -> list[Build]:
    """Return the builds of the layers on ``base``, a reference: one for each, on top of the one before.

    Equal contents have equal names, so an engine that has the name has the image. ``python`` is the interpreter inside.
    """
    found: list[Build] = []
    below, start = base, f"{BASE}:{_digest(base)}"
    for layer in layers:
        text = _containerfile(start, layer, python)
        name = f"{BUILT}:{_digest([text, layer.digest, layer.network])}"
        sha256 = layer.digest if layer.wheel else ""
        found.append(Build(layer.name, layer.folder, layer.network, name, below, start, text, layer.wheel, sha256))
        below = start = name
    return found


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:32]


def _containerfile(start: str, layer: Layer, python: str) -> str:
    """Return the text of one build. Names are validated, and each command is a list, so no shell splits them.

    A mod's run.sh starts in its own folder, with the image's working folder as WORKSPACE_DIR. Recipes name files there,
    and the ranks start elsewhere, so a link has a known name. The build runs as root without looking at the image's
    users; the ranks run as another user.
    """
    lines = [f"FROM {start}", "USER 0:0"]
    if layer.packages:
        return "\n".join([*lines, f"RUN {json.dumps([python, *_PIP, *layer.packages])}", ""])
    if layer.wheel:
        # pip reads the wheel's tags from its name.
        install = [python, *_PIP, *_REPLACE, f"{_WHEELS}/{layer.wheel.rpartition('/')[2]}"]
        return "\n".join([*lines, f"COPY {FOLDER} {_WHEELS}", f"RUN {json.dumps(install)}", ""])
    inside = f"{_INSIDE}/{layer.name}"
    script = f'export WORKSPACE_DIR="$PWD"; ln -sfn "$PWD" {WORKSPACE} && cd {inside} && exec bash ./run.sh'
    return "\n".join([*lines, f"COPY {FOLDER} {inside}", f"RUN {json.dumps(['/bin/bash', '-c', script])}", ""])
