# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module ray_info: it does not connect if Ray was complete at the start of the run."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Takes the nodes and actors that this run has read, unless a service has changed since."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        arguments = dict(self._task.args)
        read = self.compared(variables, "ray_cluster") if arguments.pop("known", False) else {}
        if "nodes" in read:
            return {"changed": False, **{name: read[name] for name in ("nodes", "actors")}}
        return self.module(arguments, variables)
