# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let one run at a time change a cluster.

Takes or releases the lock of a cluster on its head, and replaces the lock of an ended run of the same controller, for
example a killed one. Only the controller can identify the run and detect that its other runs have ended.
A lock of another run is not a failure, because a playbook then has to stop on all hosts.
In check mode only reads the lock, and warns if another run holds it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``state``: Whether to take or to release the lock. Releasing a lock that the run does not hold is not an error.
    ``breaks``: The id of another run's lock to ignore, from that lock's error message.
    ``folder``: The folder of the lock, on the head.
    """

    state: str = field(default="held", metadata={"choices": ["held", "released"]})
    breaks: str = ""
    folder: str = field(default=run_lock_plan.FOLDER, metadata={"type": "path"})


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {held, stop, problem, holder}. Raises AnsibleConnectionFailure.

    ``held``: Whether this run holds the lock, or would outside check mode.
    ``stop``: Whether a playbook has to stop: the lock is another run's or cannot be used, outside check mode, or the
    plan would be of typical facts.
    ``problem``: Why the lock is not held, with its owner, its age and the fix; "" if it is held.
    ``holder``: The lock of another run, with its owner, time and age in seconds; empty if there is none.
    """
    held = given.state == "held"
    nodes = step.variable(variables, "gb10_nodes", [])
    if held and "typical" in step.of_nodes(variables, nodes, "gb10_plan_offline", "").values():
        return {"changed": False, "held": False, "stop": True, "problem": _TYPICAL}
    # This process is a worker that ends with its task. Its parent is the run.
    mine = io_lock.owner(os.getppid(), "+".join(map(os.path.basename, context.CLIARGS.get("args", ()))))
    answer, holder = _ask(step, {**asdict(given), "owner": mine}, held, variables)
    if answer.get("failed") and not held:
        return answer
    problem = run_lock_plan.refusal(holder, mine) if holder else str(answer.get("msg", ""))
    refused = bool(holder) or answer.get("refused", False)
    stop = held and refused and not step.check_mode
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
    step: Decision, inputs: dict[str, Any], held: bool, variables: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    for _time in range(2):
        answer = step.node("cluster_lock", inputs, variables)
        holder = run_lock_plan.lock(answer["holder"]) if answer.get("holder") else {}
        if not (held and holder and io_lock.ended(holder)):
            break
        # A second ended run means that other runs take the lock at the same time.
        inputs["breaks"] = run_lock_plan.run_id(holder)
        Display().display(
            f"  {variables['inventory_hostname']}: replaces the lock of a run that has ended: "
            f"{run_lock_plan.described(holder)}"
        )
    return answer, holder
