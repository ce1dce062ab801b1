# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of cluster_lock. Only the controller can identify the run and detect that its other runs have ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock.plan import LockError

#: In place of a lock.
_TYPICAL = (
    "gb10_plan_offline: typical. Expected: false, because this playbook changes nodes. Fix: remove it; only plan.yml "
    "and models.yml plan from typical facts."
)


class ActionModule(ActionBase):
    """Runs the module for this run, and again to replace the lock of a run that has ended."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's documented result. Raises AnsibleConnectionFailure."""
        super().run(tmp, task_vars)
        released = self._task.args.get("state") == "released"
        if not released and self._typical(task_vars or {}):
            return {"changed": False, "held": False, "refused": True, "stop": True, "problem": _TYPICAL, "holder": {}}
        # This process is a worker that ends with its task. Its parent is the run.
        mine = io_lock.owner(os.getppid(), _playbooks())
        arguments = {**self._task.args, "owner": asdict(mine)}
        answer: dict[str, Any] = {}
        problem = ""
        for _time in range(2):
            answer = dict(self._execute_module(module_args=arguments, task_vars=task_vars))
            if released:
                return self._released(answer)
            if answer.get("failed"):
                answer = {
                    "changed": False,
                    "held": False,
                    "refused": answer.get("refused", False),
                    "problem": str(answer.get("msg")),
                    "holder": {},
                }
                break
            if not answer["holder"]:
                return {**answer, "refused": False, "stop": False, "problem": ""}
            # A second ended run means that other runs take the lock at the same time.
            try:
                lock, age = _holder(answer["holder"])
            except LockError as error:
                problem = run_lock_plan.unreadable(str(error))
                break
            if not run_lock_plan.ended(lock.owner, mine.boot, io_lock.started(lock.owner.pid)):
                problem = run_lock_plan.refusal(lock, age, mine)
                break
            host = (task_vars or {}).get("inventory_hostname")
            Display().display(f"  {host}: replaces the lock of a run that has ended: {run_lock_plan.described(lock)}")
            arguments["breaks"] = lock.id
            problem = run_lock_plan.refusal(lock, age, mine)
        answer = {**answer, "refused": True, "problem": problem} if problem else answer
        if self._task.check_mode and answer["refused"]:
            return {**answer, "stop": False, "warnings": [answer["problem"]]}
        return {**answer, "stop": answer["refused"]}

    def _typical(self, variables: Mapping[str, Any]) -> bool:
        """Return whether a node of the cluster would be planned from typical facts."""
        nodes = self._templar.template(variables["gb10_nodes"])
        return any(str(variables["hostvars"][node].get("gb10_plan_offline")) == "typical" for node in nodes)

    def _released(self, answer: dict[str, Any]) -> dict[str, Any]:
        if not answer.get("holder"):
            return answer
        try:
            lock, _age = _holder(answer["holder"])
            return {**answer, "warnings": [f"The lock of this run was broken: {run_lock_plan.described(lock)}."]}
        except LockError as error:
            return {"failed": True, "msg": run_lock_plan.unreadable(str(error))}


def _holder(reported: object) -> tuple[run_lock_plan.Lock, float]:
    """Validate the head's answer; return another run's lock and its age in seconds. Raises LockError."""
    age = reported.pop("age", None) if isinstance(reported, dict) else None
    if not isinstance(age, int | float) or isinstance(age, bool) or not 0 <= age <= 1e12:
        raise LockError("it has no age")
    return run_lock_plan.lock(reported), float(age)


def _playbooks() -> str:
    """Return the playbook files on this run's command line."""
    given = context.CLIARGS.get("args") if context.CLIARGS else None
    return (
        "+".join(os.path.basename(path) for path in given) if isinstance(given, (tuple, list)) and given else "ansible"
    )
