#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: netplan_apply
short_description: Apply netplan where the host differs from the fabric's plan
version_added: 0.1.0
description:
  - Compares addresses and MTU of the rails with the host, and the netplan file with what netplan generated from it at the last
    apply. Runs C(netplan apply) only if something differs, and waits until nothing does.
options:
  path:
    description: The netplan file of the fabric.
    type: path
    required: true
  timeout:
    description: Seconds until the host must be as planned.
    type: int
    default: 30
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.rails
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Apply the fabric
  gb10.cluster.netplan_apply:
    path: /etc/netplan/60-gb10-qsfp.yaml
    rails: "{{ gb10_plan.node.rails }}"
    mtu: "{{ gb10_plan.mtu }}"
  become: true
"""

RETURN = r"""
differences:
  description: How the host differed before, a sentence each.
  returned: always
  type: list
  elements: str
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import fabric, io_node
from ansible_collections.gb10.cluster.plugins.module_utils.arguments import RAILS
from ansible_collections.gb10.cluster.plugins.module_utils.io_command import runner

#: What netplan's two renderers generate for an interface. Source: netplan-generate(8).
_GENERATED = (
    "/run/systemd/network/10-netplan-{interface}.network",
    "/run/NetworkManager/system-connections/netplan-{interface}.nmconnection",
)


def unapplied(path: str, interface: str) -> list[str]:
    """Say whether the file is newer than what was generated from it: a run may have been killed in between."""
    if not os.path.exists(path):
        return []
    generated = [name.format(interface=interface) for name in _GENERATED]
    times = [os.stat(name).st_mtime for name in generated if os.path.exists(name)]
    return [] if times and max(times) >= os.stat(path).st_mtime else [f"{path} was not applied to {interface} since it was written"]


def main() -> None:
    """Compare, apply, wait."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            **RAILS,
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    run, params = runner(module), module.params

    def differences() -> list[str]:
        files = [said for rail in params["rails"] for said in unapplied(params["path"], rail["interface"])]
        return fabric.drift(params["rails"], params["mtu"], io_node.interfaces(run)) + files

    try:
        before = after = differences()
        if before and not module.check_mode:
            status, stdout, stderr = run(["netplan", "apply"])
            if status != 0:
                module.fail_json(msg=f"netplan apply failed: {(stderr or stdout).strip()}", differences=before)
            deadline = time.monotonic() + params["timeout"]
            while (after := differences()) and time.monotonic() < deadline:
                time.sleep(0.3)
            if after:
                module.fail_json(
                    msg=f"{params['timeout']} s after netplan apply the host still differs from the plan: {'; '.join(after)}", differences=after
                )
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(before), differences=before, diff={"before": "".join(f"{line}\n" for line in before), "after": ""})


if __name__ == "__main__":
    main()
