# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a planned service with the node's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, program


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
