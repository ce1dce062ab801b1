# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which stored items of a node may go: models, runtimes, builds, images and caches.

An item is needed while the inputs of a launch name it: those of a record, or of an installed service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

#: Folders below gb10_install_dir, and how many levels below them their items are.
STORES: Mapping[str, int] = {
    "models": 2,
    "runtime": 1,
    "images": 1,
    "nccl": 1,
    "build": 1,
    "files": 1,
    "hub": 1,
    "gateway": 1,
}
#: Folders outside that units of the collection fill again when they need them, by the item's name.
CACHES: Mapping[str, str] = {
    "cache/vllm-build": "/var/lib/private/gb10-vllm-build",
    "cache/kernels": "/var/cache/private/gb10-kernels",
}
#: The cache of huggingface_hub has the models that a node downloads by itself.
HUB_CACHE = "cache/huggingface"
_HUB_MODEL = re.compile(r'"model": "[^/"][^"]*"')


@dataclass(frozen=True)
class Item:
    """A stored item. ``name`` is unique on the node; ``path``: its folder or file, "" for an image.

    ``size``: text with a unit. ``kept``: why it may not go, "" if it may. ``owner``: the user in whose home it is,
    else "". ``engine``: that of an image, and ``references``: its names there.
    """

    name: str
    path: str
    size: str
    kept: str = ""
    owner: str = ""
    engine: str = ""
    references: Sequence[str] = ()


@dataclass(frozen=True)
class Launches:
    """The texts of launch inputs by the launch or service that they belong to, and why a record cannot be read."""

    texts: Mapping[str, str]
    invalid: Sequence[str] = ()


def kept(name: str, words: Sequence[str], launches: Launches) -> str:
    """Return which launches and services need an item, as the reason to keep it; ``words`` name it in their inputs.

    Without words it is a cache, which the next launch fills again.
    """
    if not words and name != HUB_CACHE:
        return ""
    named = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, words))})(?![\w.-])") if words else _HUB_MODEL
    found = [label for label, text in launches.texts.items() if named.search(text)]
    # What an unreadable record needs is unknown.
    because = [*found, *launches.invalid]
    return f"needed by {', '.join(because)}" if because else ""


def refused(items: Sequence[Item], wanted: Sequence[str]) -> list[Problem]:
    """Return why items may not be removed. Names that the node does not have are not a problem of the node."""
    return [
        Problem(
            f"reset_prune: {item.name}",
            item.kept,
            "an item that no launch needs, in folders of root",
            "leave it out; records beyond vllm_serve_keep_records are removed by site.yml",
        )
        for item in items
        if item.name in wanted and item.kept
    ]


def lines(items: Sequence[Item], wanted: Sequence[str]) -> list[str]:
    """Return a line for each item, in order of their names: size, name, and why it is kept or whether it goes."""
    return [
        f"{item.size:>9}  {item.name}{_note(item, item.name in wanted)}"
        for item in sorted(items, key=lambda item: item.name)
    ] or ["nothing is stored"]


def _note(item: Item, removed: bool) -> str:
    image = f" ({item.references[-1]}, {item.engine})" if item.engine else ""
    why = item.kept or ("to be removed" if removed else "")
    return f"{image}, {why}" if why else image
