# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a planned service with the node's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compared(service: Mapping[str, Any], inputs: str, broken: str, differs: bool) -> dict[str, Any]:
    """Return {restart_needed, restart_reason, start_needed, drops, differs} of a service, with the facts of
    io_facts.service(). ``drops``: whether a start would end a running process.

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
        "drops": bool(reason) and service["pid"] is not None,
        "differs": differs,
    }


def refusal(name: str, change: str, reason: str) -> str:
    """Return why a running service may not be changed. ``change``: restarted or stopped."""
    return (
        f"{name} is running and must be {change}: {reason}. Expected: gb10_allow_restart: true. "
        "Fix: set it, or undo the change"
    )
