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
  - Takes or releases the lock of a cluster on its head.
  - The lock names the run that holds it, and is gone after a reboot of the head.
  - Takes over the lock of an ended run of the same controller, for example a killed one.
  - Any other lock stays, however old it is.
  - A lock of another run is not a failure, because a playbook then has to stop on all hosts.
  - RV(problem) has its owner, its age and the fix.
options:
  state:
    description: Whether to take or to release the lock. Releasing a lock that the run does not hold is not an error.
    type: str
    choices: [held, released]
    default: held
  breaks:
    description: The id of another run's lock to ignore, from that lock's error message.
    type: str
    default: ""
  owner:
    description: The run, with its user, machine, playbook and process. The action plugin of this module sets it.
    type: dict
    default: {}
  folder:
    description: The folder of the lock, on the head.
    type: path
    default: /run/gb10
seealso:
  - module: gb10.cluster.cluster_status_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
attributes:
  check_mode:
    support: full
    description: In check mode only reads the lock, and warns if another run holds it.
  diff_mode:
    support: none
    description: A run releases the lock that it took, so this is not a change.
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
  description: Whether this run holds the lock, or would outside check mode.
  returned: success
  type: bool
refused:
  description:
    - True if the lock's file or folder cannot be used.
    - Without it, and without RV(holder), RV(held=false) means that the head could not be queried.
  returned: if the module failed
  type: bool
stop:
  description: Whether a playbook has to stop, because of RV(refused) or RV(holder) outside check mode, or because the
    plan would be of typical facts.
  returned: success
  type: bool
problem:
  description: The reason that the lock is not held, and the fix; empty if it is held.
  returned: success
  type: str
holder:
  description: The lock of another run, with its owner, time and age in seconds; empty if there is none.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan


def main() -> None:
    """Take, release or, in check mode, read the lock."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
            "breaks": {"type": "str", "default": ""},
            "owner": {"type": "dict", "default": {}},
            "folder": {"type": "path", "default": run_lock_plan.FOLDER},
        },
        supports_check_mode=True,
    )
    try:
        holder = io_lock.change(check=module.check_mode, **module.params)
    except (ValueError, OSError) as error:
        module.fail_json(msg=run_lock_plan.unreadable(str(error)), refused=True)
    module.exit_json(changed=False, holder=holder)


if __name__ == "__main__":
    main()
