# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A copy of the vLLM inside a container image: its layout, its record, and a container's mounts of it.

The copy has the layout that vllm_patch expects, regardless of the image's layout. Content and output of an image are
untrusted: each value is accepted in only one form.
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

#: A part of the names of the files that vllm_patch and nccl_select write next to others.
OURS = ".gb10-"
#: Written last into a copy. A folder without it is not a copy.
RECORD = "gb10-image.json"
#: Mounted as a separate folder, because vllm_patch creates and removes a folder inside it.
CONFIG = "config"
#: The folder for vllm_patch's tuned tables: below CONFIG in a copy, and in a Python environment.
TABLES = "gb10_moe_configs"
_PACKAGE, _TRITON = "site-packages/vllm", "site-packages/triton/backends/nvidia/bin"
_TORCH, _TOOLKIT = "site-packages/torch/version.py", "toolkit/ptxas"
_ID, _ARCHITECTURE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z0-9_]{0,32}")
_DIGEST = re.compile(r"[A-Za-z0-9][\w.:/-]{0,255}@sha256:[0-9a-f]{64}", re.ASCII)
#: A path inside an image. An engine gets it inside an argument, between colons and commas.
_FOLDERS = r"(?=.{0,1024}\Z)(?:/(?!\.{1,2}(?:/|\Z))[\w.+@=~-]+)*"
_PATH, _DISTRIBUTION = re.compile(_FOLDERS, re.ASCII), re.compile(_FOLDERS + r"/vllm[\w.+-]*\.dist-info", re.ASCII)
#: Limits: characters of an engine's output on an image and of a line from inside it, bytes of a size, entries.
_MOST, _MOST_LINE, _MOST_BYTES, _MOST_ENTRIES = 1 << 22, 1 << 16, 1 << 63, 64


@dataclass(frozen=True)
class Image:
    """An image of the engine.

    ``id`` is 64 hexadecimal digits, ``architecture`` is Go's name, such as arm64, and ``size`` is in bytes.
    ``digests`` are the references by digest under which registries have it.
    """

    id: str
    architecture: str
    size: int = 0
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """Absolute paths inside an image, without symbolic links, "" if missing; ``size`` is their disk usage in bytes."""

    package: str
    triton: str
    torch: str
    toolkit: str
    distributions: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Copy:
    """The record of a copy: the image's id and its name at that time, and paths inside it.

    ``package`` is the path of vLLM, ``triton`` the path of Triton's assemblers.
    """

    image_id: str
    image: str
    package: str
    triton: str


def short(image_id: str) -> str:
    """Return the name of a copy's folder."""
    return image_id[:12]


def check_reference(reference: str) -> None:
    """Raise ProblemsError for a text that cannot be an image. Engines parse a leading hyphen as an option."""
    if not re.fullmatch(r"[A-Za-z0-9]\S*", reference):
        expected = "a reference such as example.org/vllm:1 or an image's id"
        raise ProblemsError([Problem("image", f"{reference!r} is not an image", expected, "correct image")])


def image(inspected: str) -> Image:
    """Parse the output of `image inspect`, a list of one. Only Docker's ids have "sha256:" before them.

    Raises ProblemsError.
    """
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
        found = f"the engine returned an invalid image: {error}"
        raise ProblemsError([Problem("image", found, expected, "use another image")]) from error


def _word(entry: Mapping[str, Any], key: str, form: re.Pattern[str], before: str = "") -> str:
    value = entry.get(key)
    if isinstance(value, str) and form.fullmatch(value.removeprefix(before)):
        return value.removeprefix(before)
    raise ValueError(f"{key} is {reprlib.repr(value)}")


def _number(value: object, key: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_BYTES:
        return value
    raise ValueError(f"{key} is {reprlib.repr(value)}")


def found(printed: str) -> Found:
    """Parse the last output line of the search inside the image. Raises ValueError if it has another form."""
    entry = load((printed.strip().splitlines() or [""])[-1], _MOST_LINE)
    names = entry.get("distributions") if isinstance(entry, dict) else None
    if (
        not isinstance(names, list)
        or entry.keys() != {field.name for field in fields(Found)}
        or len(names) > _MOST_ENTRIES
    ):
        raise ValueError("it is not the output of the search")
    distributions = tuple(_word({"distributions": name}, "distributions", _DISTRIBUTION) for name in names)
    package, triton, torch, toolkit = (_word(entry, key, _PATH) for key in ("package", "triton", "torch", "toolkit"))
    return Found(package, triton, torch, toolkit, distributions, _number(entry["size"], "size"))


def layout(place: Found) -> list[tuple[str, str]]:
    """Return the paths to copy: (path inside the image, path inside the copy)."""
    pairs = [(place.package, _PACKAGE), (place.triton, _TRITON), (place.torch, _TORCH), (place.toolkit, _TOOLKIT)]
    pairs += [(path, f"site-packages/{path.rpartition('/')[2]}") for path in place.distributions]
    return [(source, target) for source, target in pairs if source]


def record(copy: Copy) -> str:
    """Return the text of the record."""
    return json.dumps(asdict(copy), indent=2) + "\n"


def read_record(text: str | None) -> Copy | None:
    """Return the copy that a record describes, None if the record is invalid."""
    try:
        entry = load(text or "", _MOST_LINE)
        return (
            Copy(**entry)
            if isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())
            else None
        )
    except (ValueError, TypeError):
        return None


def of_image(copy: Copy, reference: str, image_id: str | None) -> bool:
    """Return whether a copy is of the image that a reference names now, named at copy time, or abbreviates by id."""
    named = reference.removeprefix("sha256:")
    return (
        copy.image_id == image_id or copy.image == reference or (len(named) >= 12 and copy.image_id.startswith(named))
    )


def package_dir(folder: str) -> str:
    """Return the package's folder in a copy."""
    return f"{folder}/{_PACKAGE}"


def tables(folder: str) -> str:
    """Return the folder for tuned tables in a copy."""
    return f"{folder}/{CONFIG}/{TABLES}"


def answer(folder: str, copy: Copy) -> dict[str, Any]:
    """Return a container's mounts of the copy in ``folder``, and the arguments for vllm_patch."""
    mounts = [
        (package_dir(folder), copy.package),
        (f"{folder}/{_TRITON}", copy.triton),
        (f"{folder}/{CONFIG}", f"{folder}/{CONFIG}"),
    ]
    return {
        "package_dir": package_dir(folder),
        "container_package_dir": copy.package,
        "config_folder": tables(folder),
        "mounts": [{"source": source, "target": target, "read_only": True} for source, target in mounts if target],
        "toolkit": {"path": f"{folder}/{_TOOLKIT}", "runs_as": TOOLKIT},
    }


@dataclass(frozen=True)
class Assembler:
    """One ptxas: its path for vLLM, "" if it does not exist, and the architectures that its help lists.

    ``trouble`` is the reason why an existing one has no readable architectures, else "".
    """

    path: str
    archs: frozenset[str] = frozenset()
    trouble: str = ""
