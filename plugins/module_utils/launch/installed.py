# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare planned files, services and API key with the node's, as io_installed.py reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, program, systemd

#: The placeholder of the API key in the digest of its environment file.
KEY = "KEY"


def has(known: Mapping[str, Any], folders: Iterable[str], files: Mapping[str, str | bytes | None]) -> bool:
    """Return whether the node has these folders and files as root_files installs them.

    ``known`` are the facts of io_installed.read(). ``files`` maps each path to its content; None is a file that must
    not exist, which is unknown here, so that the result is False.
    """
    digests, found = known.get("files", {}), known.get("folders", ())
    return all(folder in found for folder in folders) and all(
        content is not None and digests.get(path) == _digest(content) for path, content in files.items()
    )


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def key_version(known: Mapping[str, Any], ranks: Mapping[str, str]) -> str:
    """Return the version of the node's API key, "" unless its environment file is that of a node with these ranks'
    variables."""
    key = known.get("api_key") or {"version": "", "environment": ""}
    planned = systemd.environment_file(access.environment(KEY, ranks))
    return str(key["version"]) if key["environment"] == _digest(planned) else ""


def unit_files(name: str, text: str, files: Iterable[Mapping[str, Any]]) -> dict[str, str | bytes | None]:
    """Return path -> content of a unit file and of the files that the unit runs or reads, as entries of root_files."""
    return {f"{paths.UNIT_FOLDER}/{name}": text, **{str(file["path"]): program.content(file) for file in files}}


def compared(service: Mapping[str, Any], inputs: str, broken: str, differs: bool) -> dict[str, Any]:
    """Return {restart_needed, restart_reason, start_needed, differs} of a service, with the facts of
    io_facts.service().

    ``inputs`` is the digest of the planned launch inputs; ``broken`` is why a process with these inputs must be
    restarted.
    """
    changed = service["inputs"] != inputs
    reason = "its launch inputs differ from the current plan" if changed else broken
    running = service["enabled"] and service["active"] in ("active", "activating")
    return {
        "restart_needed": bool(reason),
        "restart_reason": reason,
        "start_needed": bool(reason) or not running,
        "differs": differs,
    }
