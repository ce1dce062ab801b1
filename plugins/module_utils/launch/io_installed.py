# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the files, services and API key that the collection installed on a node."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts

_ROOTS = ("/etc/gb10", "/usr/local/lib/gb10*", f"{paths.UNIT_FOLDER}/gb10-*.service")


def read(run: Run, units: tuple[str, ...]) -> dict[str, Any]:
    """Return {files, folders, services, api_key}: path -> SHA-256, paths, unit -> io_facts.service(), and see
    _api_key().

    Only files and folders as io_file.install() and install_folder() leave them: owner root, mode 0644 or 0755, no link.
    Files with secrets have another mode. Raises OSError.
    """
    tops = [path for root in _ROOTS for path in sorted(glob.glob(root))]
    items = [item for top in tops for item in _below(top)]
    return {
        "files": {path: io_file.sha256(path) for path, folder in items if not folder},
        "folders": [path for path, folder in items if folder],
        "services": _services(run, units),
        "api_key": _api_key(*paths.API_KEY),
    }


def _services(run: Run, units: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the facts of services, {} if systemctl fails: the module that needs a service reads it again and reports
    that."""
    try:
        return io_facts.services(run, units)
    except ValueError:
        return {}


def _api_key(key_file: str, environment_file: str) -> dict[str, str]:
    """Return {version, environment} of the API key, {} unless both files exist and only root can read them.

    ``version`` is the key file's time. ``environment`` is the SHA-256 of the other file with a placeholder for the key.
    """
    if {io_file.owned(path) for path in (key_file, environment_file)} != {
        (stat.S_IFREG | 0o600, os.geteuid(), os.getegid())
    }:
        return {}
    key = io_file.read(key_file).strip()
    shown = io_file.read(environment_file).replace(key, installed.KEY) if key else ""
    return {"version": str(os.stat(key_file).st_mtime_ns), "environment": hashlib.sha256(shown.encode()).hexdigest()}


def _below(path: str) -> Iterator[tuple[str, bool]]:
    """Yield each installed item with whether it is a folder. Python's caches are not installed."""
    if io_file.owned(path) == (stat.S_IFREG | io_file.READABLE, os.geteuid(), os.getegid()):
        yield path, False
    elif io_file.installed_folder(path):
        yield path, True
        for name in sorted(os.listdir(path)):
            if name != "__pycache__":
                yield from _below(f"{path}/{name}")
