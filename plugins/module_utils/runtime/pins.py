# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pins of image tags: the image that the head's first pull of a tag got, for every later run and every node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ID, _DIGEST, _MOST = re.compile(r"[0-9a-f]{64}"), re.compile(r"(sha256:[0-9a-f]{64})?"), 1024


@dataclass(frozen=True)
class Pin:
    """The image of a tag: its ID, 64 hexadecimal digits, and its digest in the tag's registry, "" if no registry has
    it."""

    image_id: str
    digest: str


def tag(reference: str) -> str:
    """Return a reference that can mean another image tomorrow, "" for one with a digest and for an ID."""
    return "" if "sha256:" in reference else reference


def parse(found: Any) -> dict[str, Pin]:
    """Return the pins in the head's record, {tag: {image_id, digest}}.

    Other entries are left out, so that their tags are pinned again.
    """
    entries = found.items() if isinstance(found, Mapping) and len(found) <= _MOST else ()
    return {
        name: Pin(entry["image_id"], entry["digest"])
        for name, entry in entries
        if tag(name)
        and isinstance(entry, Mapping)
        and all(isinstance(entry.get(key), str) for key in ("image_id", "digest"))
        and _ID.fullmatch(entry["image_id"])
        and _DIGEST.fullmatch(entry["digest"])
    }


def pinned(reference: str, pins: Mapping[str, Pin]) -> str:
    """Return the image to run: a tag with its digest or, if no registry has it, its ID. A tag without a pin stays."""
    pin = pins.get(reference)
    if not pin:
        return reference
    return f"{reference}@{pin.digest}" if pin.digest else f"sha256:{pin.image_id}"


def with_image(pins: Mapping[str, Pin], name: str, found: Mapping[str, Any]) -> dict[str, Pin]:
    """Return the pins after the fetch of a tag. ``found``: its {image_id, digest}, without an ID in check mode."""
    image_id = found.get("image_id")
    return {**pins, **({name: Pin(str(image_id), str(found.get("digest") or ""))} if image_id else {})}


def refusal(name: str, image: str, recorded: Iterable[str], head: str, node: str) -> str:
    """Return why a node refuses the head's ``image`` of a tag, "" if it has recorded no other image of the tag."""
    others = [each for each in recorded if name and each.startswith(f"{name}@") and each != image]
    if not others:
        return ""
    return (
        f"gb10_container_image: {name} is {image} on {head}. Expected on {node}: {others[0]}, because a tag stays "
        "pinned to its first image. Nothing was sent. Fix: set gb10_container_image to the digest to run, or run "
        "site.yml -e vllm_runtime_image_update=true."
    )


def digest(reference: str, digests: Sequence[str]) -> str:
    """Return the digest of an image in the registry of a tag, "" if there is none. ``digests``: as in image_copy.Image.

    Engines may add or omit docker.io, and Podman names the registry of its own images localhost.
    """
    folder, slash, name = reference.partition("@")[0].rpartition("/")
    wanted = f"/{folder}{slash}{name.partition(':')[0]}"
    entries = (entry.partition("@") for entry in digests if not entry.startswith("localhost/"))
    found = ((f"/{repository}", value) for repository, _at, value in entries)
    return next(
        (value for repository, value in found if wanted.endswith(repository) or repository.endswith(wanted)), ""
    )
