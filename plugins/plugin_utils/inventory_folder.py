# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible reads of an inventory that is a folder: every file below it, without the names that it ignores.

Its default configuration runs programs there, and loads plugins that a file names. So files of others must not be in
such a folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ansible.inventory import manager

#: Folders next to an inventory whose files are variables or code; they are not read as inventories.
_BESIDE = {"group_vars", "host_vars", "vars_plugins"}
_OUTSIDE = "a place that Ansible does not read: a folder whose name begins with a dot, or one beside the inventory's"
_GROUPS = re.compile(rb"^(?:[ \t]*[\"']?|\[)(?:gb10_cluster\w*|head|worker)(?:[\"']?[ \t]*:|\])", re.MULTILINE)
_MOST = 1 << 20


def refused(given: Mapping[str, Sequence[str]], sources: Sequence[str]) -> list[dict[str, str]]:
    """Return {name, found, expected} of each path of others that Ansible has read as a part of the inventory.

    ``given``: variable -> paths; ``sources``: the inventories of the run.
    """
    read = {path.resolve() for folder in _folders(sources) for path in _read(folder)}
    return [
        {"name": name, "found": f"{path}, which Ansible reads with the inventory", "expected": _OUTSIDE}
        for name, paths in given.items()
        for path in paths
        if Path(path).resolve() in read or _BESIDE.intersection(Path(path).parts)
    ]


def unread(sources: Sequence[str]) -> list[dict[str, str]]:
    """Return {name, found, expected} of each file with the cluster's groups that the configuration alone leaves out."""
    always = re.compile(b"|".join((*manager.IGNORED_ALWAYS, *manager.IGNORED_EXTS)))
    skipped = [
        entry
        for folder in _folders(sources)
        for entry in sorted(folder.iterdir())
        if _is_ignored(entry) and not always.search(os.fsencode(entry.name))
    ]
    files = [each for entry in skipped for each in (entry.glob("hosts*.y*ml") if entry.is_dir() else (entry,))]
    return [
        {
            "name": os.path.relpath(path),
            "found": "groups of the cluster, in a file that Ansible does not read",
            "expected": "a file directly in the inventory's folder, whose name is hosts*.yml",
        }
        for path in files
        if _has_groups(path)
    ]


def _folders(sources: Sequence[str]) -> list[Path]:
    return [folder for folder in map(Path, sources) if folder.is_dir()]


def _read(folder: Path) -> Iterator[Path]:
    """Yield each entry that Ansible reads below a folder."""
    for entry in folder.iterdir():
        if not _is_ignored(entry):
            yield entry
            if entry.is_dir():
                yield from _read(entry)


def _is_ignored(entry: Path) -> bool:
    return manager.IGNORED.search(os.fsencode(entry.name)) is not None


def _has_groups(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _GROUPS.search(file.read(_MOST)) is not None
    except OSError:
        return False
