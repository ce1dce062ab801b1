# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file of fixed slots with the last samples, for a node without a peer. It survives a power cut at any moment."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

#: Bytes of a slot, which is one block of the disk; and the slots: ten minutes of samples.
SLOT, SLOTS = 4096, 300
SIZE = SLOT * SLOTS
SAMPLE, END = "sample", "end"
_MAGIC = b"GB10REC1"
_HEAD = struct.Struct("<8sI32s")
MOST = SLOT - _HEAD.size


def slot(number: int, boot: str, kind: str, time: float, sample: Any = None, lines: Sequence[str] = ()) -> bytes:
    """Return a slot. Lines that do not fit are left out, oldest first."""
    content: dict[str, Any] = {"number": number, "boot": boot, "kind": kind, "time": time, "sample": sample}
    kept = list(lines)
    while len(body := json.dumps({**content, "lines": kept}, separators=(",", ":")).encode()) > MOST and kept:
        kept.pop(0)
    # A sample is shorter than this by its own limits on a node without a peer: it has few rails.
    body = body if len(body) <= MOST else json.dumps({**content, "sample": None, "lines": []}).encode()
    return (_HEAD.pack(_MAGIC, len(body), hashlib.sha256(body).digest()) + body).ljust(SLOT, b"\0")


def place(number: int) -> int:
    """Return the offset of a slot in the file."""
    return number % SLOTS * SLOT


def slots(data: bytes) -> list[Mapping[str, Any]]:
    """Return the whole slots of a file, oldest first. A slot that a power cut left half is not one."""
    found = (_content(data[start : start + SLOT]) for start in range(0, len(data), SLOT))
    return sorted((each for each in found if each), key=lambda each: int(each["number"]))


def _content(data: bytes) -> Mapping[str, Any] | None:
    if len(data) < _HEAD.size:
        return None
    magic, length, digest = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or hashlib.sha256(body).digest() != digest:
        return None
    try:
        found = bounded_json.load(body.decode(), MOST)
    except ValueError:
        return None
    good = (
        isinstance(found, dict)
        and isinstance(found.get("number"), int)
        and isinstance(found.get("time"), int | float)
        and isinstance(found.get("lines"), list)
    )
    return found if good else None


def former(found: Sequence[Mapping[str, Any]], boot: str) -> list[Mapping[str, Any]]:
    """Return the slots of the last boot, [] if it ended with a clean stop, or is the present one (``boot``)."""
    if not found or found[-1].get("boot") == boot or found[-1].get("kind") == END:
        return []
    return [each for each in found if each.get("boot") == found[-1].get("boot")]
