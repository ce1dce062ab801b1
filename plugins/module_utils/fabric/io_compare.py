# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a host's fabric configuration with the plan, before anything changes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.argument_spec import RAILS
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_netplan, io_probe, io_rollback

#: The options of the module netplan_apply, which documents them.
ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "content": {"type": "str"},
    "files": {"type": "dict", "default": {}},
    **RAILS,
    "takeover": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 30},
    "confirm_timeout": {"type": "int", "default": 120},
    "identifier": {"type": "str"},
    "probe": {"type": "bool", "default": False},
}


@dataclass(frozen=True)
class Comparison:
    """The wanted files and devices, how the host differs from them, and whether the rails carry full-size frames.

    ``refused``: why netplan would not take the files.
    """

    target: dict[str, Any]
    differences: list[str]
    diff: dict[str, str]
    verified: bool
    refused: str = ""


def compare(run: Run, params: Mapping[str, Any]) -> Comparison:
    """Return the comparison; `verified` is False without the option probe. Raises ValueError, OSError."""
    target, notes = io_netplan.target(params)
    found = io_netplan.differences(run, params, target)
    if io_rollback.read(io_rollback.PENDING):
        found.append("an earlier change was never confirmed")
    diff = io_netplan.diff(target, notes, found)
    if not found:
        verified = bool(params["probe"]) and io_probe.verified(run, params["rails"], params["mtu"])
        return Comparison(target, found, diff, verified)
    interfaces = [*target["links"], *(rail["interface"] for rail in params["rails"])]
    with tempfile.TemporaryDirectory(prefix="gb10-netplan-") as scratch:
        refused = io_netplan.refusal(run, target["files"], interfaces, scratch)
    return Comparison(target, found, diff, verified=False, refused=refused)
