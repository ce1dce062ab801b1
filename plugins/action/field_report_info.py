# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module field_report_info: evidence that cannot be read is a result, not a failure."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Keeps a node in the play that cannot be read."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result, or the reason in ``unread``."""
        found, reason = self.read("gb10.cluster.field_report_info", self._task.args, variables)
        if reason:
            return {"changed": False, "evidence": {}, "unread": {"evidence": reason}}
        return {"changed": False, **found}
