# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take or release the lock of a cluster on its head, or read it in check mode.

The lock names the run that holds it, and is gone after a reboot of the head. Any lock of another run stays, however old
it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``state``: Whether to take or to release the lock. Releasing a lock that the run does not hold is not an error.
    ``breaks``: The id of another run's lock to ignore, from that lock's error message.
    ``owner``: The run, with its user, machine, playbook and process.
    ``folder``: The folder of the lock.
    """

    state: str = field(default="held", metadata={"choices": ["held", "released"]})
    breaks: str = ""
    owner: Mapping[str, Any] = field(default_factory=dict)
    folder: str = field(default=run_lock_plan.FOLDER, metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {holder}, the lock of another run, empty if there is none.

    Failed with {refused: true} if the lock's file or folder cannot be used.
    """
    try:
        holder = io_lock.change(check=module.check_mode, **asdict(given))
    except (ValueError, OSError) as error:
        return {"failed": True, "msg": run_lock_plan.unreadable(str(error)), "refused": True}
    return {"changed": False, "holder": holder}
