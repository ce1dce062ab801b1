# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the evidence of a node for a field report. A node that cannot be read is a result, not a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``install_dir``: The folder of the runtimes and models.
    """

    install_dir: str = field(metadata={"type": "path"})


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the node's step of this name, or the reason in ``unread``."""
    found, reason = step.read_node("field_evidence", {"install_dir": given.install_dir}, variables)
    if reason:
        return {"changed": False, "evidence": {}, "unread": {"evidence": reason}}
    return {"changed": False, **found}
