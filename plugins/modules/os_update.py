#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: os_update
short_description: Do one step of an update of DGX OS on a node
version_added: 0.1.0
description:
  - Each step can be killed and done again.
  - The file C(/etc/default/grub.d/zz-gb10-os-update.cfg) is the whole memory of an update under way. It keeps the
    former kernel as the default of the boot loader, so that a new one that hangs needs one power cycle.
options:
  step:
    description:
      - V(refresh) refreshes fwupd's list of firmware.
      - V(pause) stops automatic updates of the node, and V(resume) restores their settings byte for byte.
      - V(keep) makes the running kernel the default of the boot loader.
      - V(options) adds O(kernel_options) to the command line of all kernels, for good.
      - V(download) downloads the packages of the upgrade.
      - V(upgrade) upgrades all packages, and V(firmware) the firmware, in a unit that outlives the connection.
      - V(boot) boots the newest kernel once. The action plugin waits until the host answers again.
      - V(confirm) makes the newest kernel the default.
    type: str
    choices: [refresh, pause, resume, keep, options, download, upgrade, firmware, boot, confirm]
    required: true
  kernel_options:
    description: The options for V(options). V(kho=off) settles the fault of kernel 7.0.0-1019 with RoCE.
    type: list
    elements: str
    choices: [kho=off]
    default: []
  timeout:
    description: Maximum seconds until the host answers after V(boot).
    type: int
    default: 900
seealso:
  - module: gb10.cluster.os_update_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Keep the running kernel as the default
  gb10.cluster.os_update:
    step: keep
  become: true
"""

RETURN = r"""
log:
  description: The end of the log of V(download), V(upgrade) and V(firmware).
  returned: with these steps, outside of check mode
  type: str
boot_id:
  description: The ID of the boot that ends.
  returned: with V(boot), outside of check mode
  type: str
seconds:
  description: Seconds from the order to the first answer.
  returned: with V(boot), outside of check mode
  type: int
timeout:
  description: As the option.
  returned: with V(boot), outside of check mode
  type: int
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_change, io_state, plan

_LOGGED = {
    "refresh": io_change.refresh,
    "download": io_change.download,
    "upgrade": io_change.upgrade,
    "firmware": io_change.firmware,
}
_CHANGES = {"keep": io_change.keep, "boot": io_change.boot, "confirm": io_change.confirm}


def main() -> None:
    """Do the step."""
    steps = ["pause", "resume", "options", *_LOGGED, *_CHANGES]
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": steps, "required": True},
            "kernel_options": {"type": "list", "elements": "str", "choices": list(plan.OFFERED), "default": []},
            "timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True,
    )
    step, run, check = module.params["step"], runner(module), module.check_mode
    # Before the order to boot, after which nothing may fail.
    boots = {"boot_id": io_state.boot_id(), "timeout": module.params["timeout"]} if step == "boot" and not check else {}
    changes: io_change.Changes = []
    try:
        if step in _LOGGED:
            log = "" if check else _LOGGED[step](run)
            # A refreshed list and downloaded files change no node.
            changed = step in ("upgrade", "firmware") and (check or step == "upgrade" or bool(log))
            module.exit_json(changed=changed, **({"log": log} if log else {}))
        elif step == "pause":
            changes = io_change.pause(run, check)
        elif step == "resume":
            changes = io_change.resume(check)
        elif step == "options":
            changes = io_change.add_options(run, module.params["kernel_options"], check)
        else:
            changes = _CHANGES[step](run, io_state.read(run, simulate=False), check)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(changes) or step == "boot", diff=changes, **boots)


if __name__ == "__main__":
    main()
