# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A copy of the vLLM inside a container image: how it is laid out, what is written down of it, what a container mounts in its place.

In the copy everything lies where vllm_patch looks for it, however it was spread in the image.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_patch_types import TOOLKIT

#: Written last into a copy, so that without it there is none.
RECORD = "gb10-image.json"
#: Mounted as a folder of its own, because vllm_patch makes and removes the one inside it.
CONFIG = "config"
_PACKAGE, _TRITON = "site-packages/vllm", "site-packages/triton/backends/nvidia/bin"
_TORCH, _TOOLKIT = "site-packages/torch/version.py", "toolkit/ptxas"


@dataclass(frozen=True)
class Image:
    """An image that the engine has; ``id`` is 64 hexadecimal digits, ``architecture`` as Go names it, such as arm64; ``size`` is in bytes.

    ``digests`` are those under which registries have it, as references.
    """

    id: str
    architecture: str
    size: int = 0
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """Absolute paths inside an image, without symbolic links, "" for what is not there; ``size`` is what they take on disk, in bytes."""

    package: str
    triton: str
    torch: str
    toolkit: str
    distributions: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Copy:
    """What is written down of a copy: the image, by its id and by the name it then had, and where package and Triton's assemblers lie in it."""

    image_id: str
    image: str
    package: str
    triton: str


def short(image_id: str) -> str:
    """Return the name of a copy's folder."""
    return image_id[:12]


def check_reference(reference: str) -> None:
    """Raise ProblemsError for what cannot be an image; an engine would take what begins with a hyphen for an option."""
    if not re.fullmatch(r"[A-Za-z0-9]\S*", reference):
        expected = "a reference such as example.org/vllm:1 or an image's id"
        raise ProblemsError([Problem("image", f"{reference!r} is no image", expected, "correct image")])


def image(inspected: str) -> Image:
    """Read what `image inspect` prints: a list of one. Docker writes "sha256:" before an id, Podman does not."""
    (entry,) = json.loads(inspected)
    digests = tuple(sorted(entry.get("RepoDigests") or ()))
    return Image(entry["Id"].removeprefix("sha256:"), entry.get("Architecture", ""), int(entry.get("Size") or 0), digests)


def found(printed: str) -> Found:
    """Read the last line that the search inside the image printed. Raises ValueError if that is not what it prints."""
    entry = json.loads((printed.strip().splitlines() or [""])[-1])
    place = Found(**{**entry, "distributions": tuple(entry["distributions"])})
    paths = [path for path in (place.package, place.triton, place.torch, place.toolkit) if path]
    if not all(path.startswith("/") for path in paths) or not all(re.fullmatch(r"/.*/vllm[\w.+-]*\.dist-info", path) for path in place.distributions):
        raise ValueError(f"unexpected paths in {entry}")
    return place


def layout(place: Found) -> list[tuple[str, str]]:
    """Return what is copied: (path inside the image, path inside the copy)."""
    pairs = [(place.package, _PACKAGE), (place.triton, _TRITON), (place.torch, _TORCH), (place.toolkit, _TOOLKIT)]
    pairs += [(path, f"site-packages/{path.rpartition('/')[2]}") for path in place.distributions]
    return [(source, target) for source, target in pairs if source]


def record(copy: Copy) -> str:
    """Return the text of the record."""
    return json.dumps(asdict(copy), indent=2) + "\n"


def read_record(text: str | None) -> Copy | None:
    """Return the copy that a record describes, None if it is none."""
    try:
        return Copy(**json.loads(text or ""))
    except (ValueError, TypeError):
        return None


def of_image(copy: Copy, reference: str, image_id: str | None) -> bool:
    """Whether a copy is of the image that a reference means now, meant when it was made, or begins the id of."""
    named = reference.removeprefix("sha256:")
    return copy.image_id == image_id or copy.image == reference or (len(named) >= 12 and copy.image_id.startswith(named))


def package_dir(folder: str) -> str:
    """Return the package's folder in a copy."""
    return f"{folder}/{_PACKAGE}"


def answer(folder: str, copy: Copy) -> dict[str, Any]:
    """Return what a container needs of the copy in ``folder``, and vllm_patch to patch it."""
    mounts = [(package_dir(folder), copy.package), (f"{folder}/{_TRITON}", copy.triton), (f"{folder}/{CONFIG}", f"{folder}/{CONFIG}")]
    return {
        "package_dir": package_dir(folder),
        "container_package_dir": copy.package,
        "config_folder": f"{folder}/{CONFIG}/gb10_moe_configs",
        "mounts": [{"source": source, "target": target, "read_only": True} for source, target in mounts if target],
        "toolkit": {"path": f"{folder}/{_TOOLKIT}", "runs_as": TOOLKIT},
    }
