# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a model's folder on this host for the planner."""

from __future__ import annotations

import glob
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model import kind, quantization
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan

#: The user in place of a service user that does not exist yet.
_NOBODY = 65534
_FIRST_UNREAD = 'for path; do [ -r "$path" ] || { printf %s "$path"; break; }; done'
#: The result of planned_model() without a model folder.
NO_MODEL: dict[str, Any] = {
    "model": None,
    "model_bytes": None,
    "model_reason": "",
    "model_at": "",
    "model_complete": False,
}
#: Maximum bytes of a config.json, which goes to the controller as a whole. The largest files list unquantized modules
#: and have half a million bytes.
MOST_CONFIG = 1 << 22
#: Model Optimizer's file with the quantization, which some models have instead of an entry in config.json.
QUANTIZATION = "hf_quant_config.json"
#: The file of sentence-transformers with a model's modules, which decides its kind.
MODULES = "modules.json"
#: Maximum bytes of the text file that `git clone` writes in place of a large file, and its beginning. Source: Git LFS,
#: docs/spec.md.
_POINTER_BYTES, _POINTER = 1023, "version https://git-lfs.github.com/spec/"


def model(folder: str, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return {model, model_bytes, model_reason} of a folder: config.json, bytes of weights, and why they cannot be
    loaded.

    The config.json has the quantization and the types of the modules from other files. The first two are None if
    missing; see config.checkpoint(). ``sizes``: bytes of its *.safetensors, None to read them from the folder.
    Raises ValueError with the name of an unreadable JSON file.
    """
    sizes = _weights(folder) if sizes is None else sizes
    pointers = [name for name in sorted(sizes) if sizes[name] <= _POINTER_BYTES and _is_pointer(f"{folder}/{name}")]
    size, reason = model_config.checkpoint(sizes, io_json.json_file(f"{folder}/model.safetensors.index.json"), pointers)
    config, separate = (io_json.json_file(f"{folder}/{name}", MOST_CONFIG) for name in ("config.json", QUANTIZATION))
    found = kind.with_modules(quantization.with_separate(config, separate), io_json.json_list(f"{folder}/{MODULES}"))
    return {"model": found, "model_bytes": size, "model_reason": reason}


def _is_pointer(path: str) -> bool:
    try:
        return (io_file.read_bounded(path, _POINTER_BYTES) or "").startswith(_POINTER)
    except ValueError:
        return False


def _weights(folder: str) -> dict[str, int]:
    names = glob.glob(f"{glob.escape(folder)}/*.safetensors")
    return {os.path.basename(name): os.path.getsize(name) for name in names if os.path.exists(name)}


def _unread(folder: str, names: Sequence[str], user: str) -> str:
    """Return the first file that a user cannot read, "" if there is none. Only root can find out.

    The kernel decides, in a process of that user, because modes alone do not show access lists and folders above.
    """
    if os.geteuid() != 0:
        return ""
    try:
        entry = pwd.getpwnam(user)
        uid, gid, groups = entry.pw_uid, entry.pw_gid, os.getgrouplist(user, entry.pw_gid)
    except KeyError:
        uid, gid, groups = _NOBODY, _NOBODY, []
    argv = ["/bin/sh", "-c", _FIRST_UNREAD, "sh", *(f"{folder}/{name}" for name in names)]
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        argv, user=uid, group=gid, extra_groups=groups, env={}, cwd="/", stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode(errors="replace").removeprefix(f"{folder}/")


def planned_model(folder: str, source: str, exclude: Sequence[str], user: str = "") -> dict[str, Any]:
    """Return the result of model() for the model's folder, or for its source folder until the copy is complete.

    The manifest marks a complete copy. Adds {model_at, model_complete}: the folder that was read, and whether the
    model's folder is complete. ``source`` may be "", ``exclude`` contains patterns of files that are not copied. The
    copy does not change the result of model(). ``user`` has to read a folder that the store did not copy. Raises
    ValueError.
    """
    complete = io_files.complete(folder)
    place = source if source and not complete and os.path.exists(f"{source}/config.json") else folder
    manifest = io_files.manifest(folder) if complete else None
    files = manifest.files if manifest else tuple(starmap(model_store_plan.File, _weights(place).items()))
    sizes = model_store_plan.weights(files, exclude if place == source else ())
    found = model(place, sizes)
    if user and place == folder and not complete and not found["model_reason"]:
        names = [name for name in ("config.json", *sorted(sizes)) if os.path.exists(f"{place}/{name}")]
        if refused := _unread(place, names, user):
            # vLLM's loader would report a missing file.
            found["model_reason"] = f"{user} cannot read {refused}"
    return {**found, "model_at": place, "model_complete": complete}
