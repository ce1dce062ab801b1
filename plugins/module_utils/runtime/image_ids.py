# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ID of the image on the head, which is the hash of its contents, compared with what another node knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ID_IN_NAME = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Known:
    """What a node knows about the image: its name in the plan, and the IDs in the node's record and engine, "" if
    unknown."""

    image: str
    recorded: str
    engine: str


def of_head(named: Mapping[str, Any], fetched: Mapping[str, Any]) -> str:
    """Return the image's ID on the head, "" if check mode has not fetched it.

    Both are results of module container_image: for the image's name, and for its pull or its last build.
    """
    return str(named.get("image_id") or fetched.get("image_id") or "")


def other(known: Known, image_id: str) -> str:
    """Return the ID that a node knows besides the head's, "" if there is none.

    The head cannot change an ID in the name. For a digest it cannot change the recorded ID or that of the engine.
    """
    in_name = _ID_IN_NAME.fullmatch(known.image)
    of_digest = [known.recorded, known.engine] if "@sha256:" in known.image else []
    ids = [*([in_name[1]] if in_name else []), *of_digest]
    return next((each for each in ids if each not in ("", image_id)), "")


def problem(known: Known, image_id: str, head: str, node: str) -> str:
    """Return why a node refuses the head's image, "" if it is the node's, or if the head has none yet."""
    expected = other(known, image_id)
    if not image_id or not expected:
        return ""
    return (
        f"gb10_container_image: {head} has {known.image} as sha256:{image_id}. Expected on {node}: sha256:{expected}, "
        "because a digest or an ID always means the same image. Nothing was sent. "
        f"Fix: find out why {head} has another image."
    )
