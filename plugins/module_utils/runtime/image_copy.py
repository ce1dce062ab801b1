# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A copy of the vLLM inside a container image: how it is laid out, what is written down of it, what a container mounts in its place.

In the copy everything lies where vllm_patch looks for it, however it was spread in the image. What an image holds and prints is its maker's:
each value is taken in one form alone.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.bounded_json import load, mappings
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError

#: Where CUDA toolkits are installed.
TOOLKIT = "/usr/local/cuda/bin/ptxas"

#: Written last into a copy, so that without it there is none.
RECORD = "gb10-image.json"
#: Mounted as a folder of its own, because vllm_patch makes and removes the one inside it.
CONFIG = "config"
_PACKAGE, _TRITON = "site-packages/vllm", "site-packages/triton/backends/nvidia/bin"
_TORCH, _TOOLKIT = "site-packages/torch/version.py", "toolkit/ptxas"
_ID, _ARCHITECTURE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z0-9_]{0,32}")
_DIGEST = re.compile(r"[A-Za-z0-9][\w.:/-]{0,255}@sha256:[0-9a-f]{64}", re.ASCII)
#: A place inside an image: an engine takes it as a part of a word, between colons and commas.
_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[\w.+@=~-]+)+", re.ASCII)
_DISTRIBUTION, _VERSION = re.compile(r"vllm[\w.+-]*\.dist-info", re.ASCII), re.compile(r"[\w.+!-]{0,64}", re.ASCII)
#: Characters of what an engine prints of an image, and of one line from inside it; bytes that a size can be; other limits.
_MOST, _MOST_LINE, _MOST_BYTES, _MOST_ENTRIES, _MOST_PATH = 1 << 22, 1 << 16, 1 << 63, 64, 1024


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
    """Read what `image inspect` prints: a list of one. Docker writes "sha256:" before an id, Podman does not. Raises ProblemsError."""
    try:
        (entry,) = mappings(load(inspected, _MOST))
        digests = entry.get("RepoDigests") or []
        if not isinstance(digests, list) or len(digests) > _MOST_ENTRIES:
            raise ValueError(f"RepoDigests is {reprlib.repr(digests)}")
        return Image(
            _word(entry, "Id", _ID, "sha256:"),
            _word({"Architecture": "", **entry}, "Architecture", _ARCHITECTURE),
            _number(entry.get("Size") or 0, "Size"),
            tuple(sorted(_word({"RepoDigests": digest}, "RepoDigests", _DIGEST) for digest in digests)),
        )
    except ValueError as error:
        expected = "an id, an architecture, a size and references by digest"
        raise ProblemsError([Problem("image", f"the engine shows an image that is none: {error}", expected, "take another image")]) from error


def _word(entry: Mapping[str, Any], key: str, form: re.Pattern[str], before: str = "") -> str:
    value = entry.get(key)
    if isinstance(value, str) and form.fullmatch(value.removeprefix(before)):
        return value.removeprefix(before)
    raise ValueError(f"{key} is {reprlib.repr(value)}")


def _number(value: object, key: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_BYTES:
        return value
    raise ValueError(f"{key} is {reprlib.repr(value)}")


def _answered(printed: str) -> Mapping[str, Any]:
    """Return the object in the last line that a program inside an image printed. Raises ValueError."""
    entry = load((printed.strip().splitlines() or [""])[-1], _MOST_LINE)
    if not isinstance(entry, dict):
        raise ValueError(f"{reprlib.repr(entry)} is no object")
    return entry


def found(printed: str) -> Found:
    """Read the last line that the search inside the image printed. Raises ValueError if that is not what it prints."""
    entry = _answered(printed)
    names = entry.get("distributions")
    if entry.keys() != {field.name for field in fields(Found)} or not isinstance(names, list) or len(names) > _MOST_ENTRIES:
        raise ValueError("it is not what the search prints")
    distributions = tuple(_path({"distributions": name}, "distributions") for name in names)
    if not all(_DISTRIBUTION.fullmatch(path.rpartition("/")[2]) for path in distributions):
        raise ValueError(f"distributions is {reprlib.repr(names)}")
    package, triton, torch, toolkit = (_path(entry, key) for key in ("package", "triton", "torch", "toolkit"))
    return Found(package, triton, torch, toolkit, distributions, _number(entry["size"], "size"))


def _path(entry: Mapping[str, Any], key: str) -> str:
    value = entry[key]
    if isinstance(value, str) and len(value) <= _MOST_PATH and (not value or _PATH.fullmatch(value)):
        return value
    raise ValueError(f"{key} is {reprlib.repr(value)}")


def versions(printed: str) -> dict[str, str]:
    """Read the last line that the image printed of the vLLM and the Ray in it, "" for what it has not. Raises ValueError."""
    entry = _answered(printed)
    return {name: _word(entry, name, _VERSION) for name in ("vllm", "ray")}


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
        entry = load(text or "", _MOST_LINE)
        return Copy(**entry) if isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values()) else None
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


@dataclass(frozen=True)
class Assembler:
    """One ptxas: where vLLM finds it, "" if it is not there, and the architectures that its help lists.

    ``trouble`` says why these cannot be told of one that is there, "" if they can.
    """

    path: str
    archs: frozenset[str] = frozenset()
    trouble: str = ""
