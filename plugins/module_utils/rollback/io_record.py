# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write, compare and restore a node's record of its last good launch. plan.py describes the record."""

from __future__ import annotations

import contextlib
import glob
import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import tls as api_tls
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json, paths

#: Path of the record on a node.
RECORD = "/etc/gb10/last_good.json"
#: Launch inputs of the services, in addition to the overrides.
FILES = ("/etc/gb10/cluster.env", *(f"{paths.UNIT_FOLDER}/{unit}" for unit in paths.UNITS), paths.SECRET_ENVIRONMENT, *api_tls.FILES.values())
#: The environment of the ranks may contain secrets.
_MODE = 0o600


def units(files: Mapping[str, Any]) -> list[str]:
    """Return the services among a record's files, in start order."""
    return [unit for unit in paths.UNITS if f"{paths.UNIT_FOLDER}/{unit}" in files]


def read(path: str) -> dict[str, Any]:
    """Return the record, with empty start and files if absent. Raises ValueError for an invalid file, OSError."""
    found = io_json.json_file(path) or {"start": {}, "files": {}}
    if not isinstance(found.get("start"), dict) or not isinstance(found.get("files"), dict):
        raise ValueError(f"{path} is not a launch record; remove it")
    return found


def start_id(path: str) -> str:
    """Return the identifier of the recorded launch, "" without a valid record. Raises OSError."""
    try:
        return str(read(path)["start"].get("id", ""))
    except ValueError:
        return ""


def present(root: str = "") -> dict[str, dict[str, Any]]:
    """Return the launch inputs of this node's services: path -> {text, mode}. ``root`` prefixes each path.

    Raises OSError.
    """
    recorded = [name.removeprefix(root) for name in sorted(glob.glob(f"{glob.escape(root)}{paths.OVERRIDES}/*.json"))]
    files = {name: io_file.read_file(f"{root}{name}") for name in (*FILES, *recorded)}
    return {name: {"text": text, "mode": mode} for name, (text, mode) in files.items() if text is not None}


def write(path: str, record: dict[str, Any]) -> None:
    """Write the record. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    io_file.write_file(path, json.dumps(record, indent=2, sort_keys=True) + "\n", _MODE)


def differences(record: dict[str, Any], now: dict[str, dict[str, Any]]) -> list[str]:
    """Return the paths that differ from the record, including those that it lacks."""
    return sorted(name for name in record["files"].keys() | now.keys() if record["files"].get(name) != now.get(name))


def restore(record: dict[str, Any], names: list[str], root: str = "") -> None:
    """Restore files from the record and remove those that it lacks. Raises OSError."""
    for name in names:
        if name in record["files"]:
            os.makedirs(os.path.dirname(f"{root}{name}"), mode=0o755, exist_ok=True)
            io_file.write_file(f"{root}{name}", record["files"][name]["text"], record["files"][name]["mode"])
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{root}{name}")
