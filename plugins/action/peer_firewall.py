# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of module peer_firewall. It confirms new rules over a new SSH connection: an old one would stay open."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.firewall import of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: Extra seconds after the timer's own, within which the host must be reachable again.
_GRACE_SECONDS = 30


class ActionModule(Decision):
    """Run the module. If it loaded new rules, run it again over a new connection, which confirms them."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result, failed if the new rules cut the host off. Raises AnsibleConnectionFailure."""
        begin = time.monotonic()
        first = self.client()
        given = dict(self._task.args)
        if given.pop("planned", False):
            # Without SSH, Ansible runs on the node itself.
            local = self._connection.transport == "local"
            plan, settings = self.plan(variables), self.role_settings(variables, of_plan.FirewallSettings)
            given |= of_plan.options(plan, settings, monitoring_plan.ports(plan, settings.monitoring_port), local)
        answer = self.module({**given, "client": first[0]}, variables)
        # With a witness the role confirms.
        if not answer.get("pending") or given.get("witness"):
            return answer
        timeout = int(given.get("confirm_timeout", 60))
        try:
            self._connection.reset()
            again = self.client()
            if again == first:
                message = (
                    f"The new rules were not confirmed, and the host rolls them back within {timeout} s: Ansible's "
                    f"connection from {first[0]} port {first[1]} is an old one, so it does not verify them. Fix: do "
                    "not set ControlMaster and ControlPath of SSH; Ansible sets them."
                )
                return {**answer, "changed": False, "pending": False, "failed": True, "msg": message}
            confirmed = self.module({**given, "client": again[0], "confirm": True}, variables)
        except AnsibleConnectionFailure as error:
            Display().display(
                f"  no new connection to the host ({error}); waiting until it has rolled back the new rules"
            )
            self.reconnected(
                lambda: self.module({}, variables, "ansible.builtin.ping"), begin + timeout + _GRACE_SECONDS
            )
            message = f"The new rules cut the host off, and it rolled them back: {error}"
            return {**answer, "changed": False, "pending": False, "failed": True, "msg": message}
        if confirmed.get("failed"):
            return confirmed
        return {**answer, "pending": False}
