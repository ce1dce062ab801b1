#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_lock
short_description: Let one run at a time change a cluster
version_added: 0.1.0
description:
  - Takes the lock of a cluster on its head, or gives it back. It names the run that holds it, and is gone after a reboot of the head.
  - The lock of a run of the same controller that has ended, as one that was killed, is taken over. Every other lock stays, however old it is.
  - A lock that is not to be had is no failure, because a playbook has to stop on all hosts then. RV(problem) has the owner, the age, and the way out.
options:
  state:
    description: Whether to take the lock or to give it back. To give back what one does not have is no error.
    type: str
    choices: [held, released]
    default: held
  breaks:
    description: The id of another run's lock that is to count as none, as that run's message names it.
    type: str
    default: ""
  owner:
    description: The run, which the action behind this module finds out.
    type: dict
    suboptions:
      user:
        description: Who runs it.
        type: str
        required: true
      host:
        description: On which machine.
        type: str
        required: true
      playbook:
        description: What is run.
        type: str
        required: true
      boot:
        description: What tells the machine's present start from others, empty if nothing does.
        type: str
        required: true
      pid:
        description: The number of its process.
        type: int
        required: true
      started:
        description: When the process was started.
        type: str
        required: true
  folder:
    description: The folder with the lock, on the head.
    type: path
    default: /run/gb10
author:
  - gb10.cluster maintainers (@gb10-cluster)
attributes:
  check_mode:
    support: full
    description: In check mode takes nothing, and warns of a lock that is not to be had.
  diff_mode:
    support: none
    description: A run gives back what it took, so nothing counts as a change.
"""

EXAMPLES = r"""
- name: Lock the cluster
  gb10.cluster.cluster_lock:
  become: true

- name: Unlock it
  gb10.cluster.cluster_lock:
    state: released
  become: true
"""

RETURN = r"""
held:
  description: Whether this run holds the lock now, or would without check mode.
  returned: success
  type: bool
refused:
  description: Whether another run holds the lock, or something else is in its place. If not, and it is not held, the head could not be asked.
  returned: success
  type: bool
problem:
  description: Why the lock is not held, and what to do; empty if it is.
  returned: success
  type: str
holder:
  description: The lock of another run, with its owner, id, time and age in seconds; empty if there is none.
  returned: success
  type: dict
former:
  description: The lock of a run that had ended, or that was broken, in whose place this one is; empty if there was none.
  returned: success
  type: dict
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock as io_cluster_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as cluster_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock.plan import Lock, LockError

OWNER = {name: {"type": "int" if name == "pid" else "str", "required": True} for name in ("user", "host", "playbook", "boot", "pid", "started")}


def told(lock: Lock | None) -> dict[str, object]:
    """Return a lock with its age."""
    return {**asdict(lock), "age": max(0.0, round(io_cluster_lock.now() - lock.taken, 1))} if lock else {}


def main() -> None:
    """Take it, give it back, or in check mode look at it."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
            "breaks": {"type": "str", "default": ""},
            "owner": {"type": "dict", "options": OWNER},
            "folder": {"type": "path", "default": cluster_lock.FOLDER},
        },
        required_if=[("state", "held", ("owner",)), ("state", "released", ("owner",))],
        supports_check_mode=True,
    )
    state, folder, breaks = module.params["state"], module.params["folder"], module.params["breaks"]
    try:
        owner, former = cluster_lock.owner(module.params["owner"]), None
        if module.check_mode:
            found = io_cluster_lock.look(folder)
            lock = None if found and found.id == breaks else found
        elif state == "held":
            lock, former = io_cluster_lock.hold(folder, owner, breaks)
        else:
            lock = io_cluster_lock.release(folder, owner)
    except LockError as error:
        module.fail_json(msg=cluster_lock.unreadable(str(error)), refused=True)
    except OSError as error:
        module.fail_json(msg=f"{folder}/{cluster_lock.FILE} on the head: {error.strerror}")
    others = lock is not None and not lock.owner.runs(owner)
    module.exit_json(changed=False, held=state == "held" and not others, holder=told(lock) if others else {}, former=told(former))


if __name__ == "__main__":
    main()
