# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ID of the image on the head, which is the hash of its contents, compared with what another node knows."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ID_IN_NAME = re.compile(r"sha256:([0-9a-f]{64})")


def problem(image: str, known: Sequence[str], image_id: str, head: str, node: str) -> str:
    """Return why a node refuses the head's image, "" if it is the node's, or if the head has none yet.

    ``image`` is its name in the plan, ``known`` are the IDs in the node's record and engine, "" if unknown. The head
    cannot change an ID in the name. For a digest it cannot change the IDs that the node knows.
    """
    in_name = _ID_IN_NAME.fullmatch(image)
    ids = [*([in_name[1]] if in_name else []), *(known if "@sha256:" in image else [])]
    expected = next((each for each in ids if each not in ("", image_id)), "")
    if not image_id or not expected:
        return ""
    return (
        f"gb10_container_image: {head} has {image} as sha256:{image_id}. Expected on {node}: sha256:{expected}, "
        "because a digest or an ID always means the same image. Nothing was sent. "
        f"Fix: find out why {head} has another image."
    )
