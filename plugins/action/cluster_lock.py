# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of cluster_lock. Only the controller can identify the run and detect that its other runs have ended."""

from __future__ import annotations

import os
from typing import Any

from ansible import context
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: In place of a lock.
_TYPICAL = (
    "gb10_plan_offline: typical. Expected: false, because this playbook changes nodes. Fix: remove it; only plan.yml "
    "and models.yml plan from typical facts."
)


class ActionModule(Decision):
    """Runs the module for this run, and again to replace the lock of a run that has ended."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the documented result. Raises AnsibleConnectionFailure."""
        held = self._task.args.get("state") != "released"
        if (
            held
            and "typical"
            in self.of_nodes(variables, self.variable(variables, "gb10_nodes", []), "gb10_plan_offline", "").values()
        ):
            return {"changed": False, "held": False, "stop": True, "problem": _TYPICAL}
        # This process is a worker that ends with its task. Its parent is the run.
        mine = io_lock.owner(os.getppid(), "+".join(map(os.path.basename, context.CLIARGS.get("args", ()))))
        answer, holder = self._ask(dict(self._task.args, owner=mine), held, variables)
        if answer.get("failed") and not held:
            return answer
        problem = run_lock_plan.refusal(holder, mine) if holder else str(answer.get("msg", ""))
        refused = bool(holder) or answer.get("refused", False)
        stop = held and refused and not self._task.check_mode
        warning = problem if held else f"The lock of this run was broken: {problem}"
        return {
            "changed": False,
            "held": held and not holder and not answer.get("failed"),
            "stop": stop,
            "problem": problem,
            "holder": holder,
            "warnings": [warning] if refused and not stop else [],
        }

    def _ask(
        self, given: dict[str, Any], held: bool, variables: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        for _time in range(2):
            answer = self.module(given, variables)
            holder = run_lock_plan.lock(answer["holder"]) if answer.get("holder") else {}
            if not (held and holder and io_lock.ended(holder)):
                break
            # A second ended run means that other runs take the lock at the same time.
            given["breaks"] = run_lock_plan.run_id(holder)
            Display().display(
                f"  {variables['inventory_hostname']}: replaces the lock of a run that has ended: "
                f"{run_lock_plan.described(holder)}"
            )
        return answer, holder
