# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's folder on this host, as the planner needs it."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_json
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files as io_model_files
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store

#: What planned_model() returns where there is none to look at.
NO_MODEL: dict[str, Any] = {"model": None, "model_bytes": None, "model_reason": "", "model_at": "", "model_complete": False}
#: Of a config.json, all of which goes to the controller. The largest, with names of what is not quantised, have half a million.
MOST_CONFIG = 1 << 22


def model(folder: str, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return {model, model_bytes, model_reason} of a folder: its config.json, its weights, and what is wrong with the latter.

    Both are None if there are none; see model_config.checkpoint. ``sizes``: bytes of its *.safetensors, None to look at what is there. Raises
    ValueError naming a JSON file that cannot be read.
    """
    sizes = _weights(folder) if sizes is None else sizes
    size, reason = model_config.checkpoint(sizes, io_json.json_file(f"{folder}/model.safetensors.index.json"))
    return {"model": io_json.json_file(f"{folder}/config.json", MOST_CONFIG), "model_bytes": size, "model_reason": reason}


def _weights(folder: str) -> dict[str, int]:
    names = glob.glob(f"{glob.escape(folder)}/*.safetensors")
    return {os.path.basename(name): os.path.getsize(name) for name in names if os.path.exists(name)}


def planned_model(folder: str, source: str, exclude: Sequence[str]) -> dict[str, Any]:
    """Return what model() says of a model that is in its folder or, until that is complete by its manifest, in the one that it is copied from.

    With {model_at, model_complete}: the folder that was read, and whether the first is complete. ``source`` may be "", ``exclude`` are patterns of
    files that are not copied. The answer is the same before and after the copy. Raises ValueError.
    """
    complete = io_model_files.complete(folder)
    place = source if source and not complete and os.path.exists(f"{source}/config.json") else folder
    manifest = io_model_files.manifest(folder) if complete else None
    files = manifest["files"] if manifest else [{"path": name, "size": size} for name, size in _weights(place).items()]
    sizes = model_store.weights(files, exclude if place == source else ())
    return {**model(place, sizes), "model_at": place, "model_complete": complete}
