#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fabric_probe
short_description: Prove that every rail of the fabric carries packets of the full MTU
version_added: 0.1.0
description:
  - Pings each peer of each rail, bound to the rail's interface, with a packet of exactly the MTU and fragmentation forbidden.
  - Run on every node it proves both directions.
options:
  timeout:
    description: For how many seconds a rail that does not answer is tried again, because links and peers come up late.
    type: int
    default: 20
  required:
    description: Whether the module fails where a path is not proven. If not, RV(unproven) tells.
    type: bool
    default: true
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.rails
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Prove the fabric
  gb10.cluster.fabric_probe:
    rails: "{{ gb10_plan.node.rails }}"
    mtu: "{{ gb10_plan.mtu }}"
  become: true
"""

RETURN = r"""
proven:
  description: What was proven, a line for each rail and peer.
  returned: success
  type: list
  elements: str
  sample: ["enp1s0f1np1 -> spark2 (10.110.0.2): 9000 bytes"]
unproven:
  description: The paths that do not carry a full packet.
  returned: always
  type: list
  elements: dict
  contains:
    interface:
      description: The rail.
      type: str
    peer:
      description: The node at its other end.
      type: str
    address:
      description: Its address.
      type: str
    said:
      description: What ping said.
      type: str
    small:
      description: Whether a packet of 576 bytes comes through, so that only the MTU is at fault.
      type: bool
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import fabric_report
from ansible_collections.gb10.cluster.plugins.module_utils.arguments import RAILS
from ansible_collections.gb10.cluster.plugins.module_utils.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.io_node import Run

#: IPv4 and ICMP headers, which the ping payload leaves room for.
_HEADERS = 28
#: What every IPv4 link carries, to tell a path of a smaller MTU from one that is cut.
_SMALL = 576


def ping(run: Run, interface: str, address: str, size: int) -> str:
    """Send one packet of exactly `size` bytes. Returns "" or what went wrong."""
    status, stdout, stderr = run(["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", str(size - _HEADERS), "-I", interface, address])
    if status == 0:
        return ""
    said = [line for line in (stderr or stdout).splitlines() if line.strip() and "statistics" not in line]
    return said[-1].strip() if said else f"ping ended with status {status}"


def main() -> None:
    """Ping every rail until all answer or the time is over."""
    module = AnsibleModule(
        argument_spec={
            **RAILS,
            "timeout": {"type": "int", "default": 20},
            "required": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    run, mtu = runner(module), module.params["mtu"]
    targets = [(rail["interface"], name, address) for rail in module.params["rails"] for name, address in rail["peers"].items()]
    deadline = time.monotonic() + module.params["timeout"]
    pending = dict.fromkeys(targets, "")
    while pending:
        pending = {target: said for target in pending if (said := ping(run, target[0], target[2], mtu))}
        if time.monotonic() > deadline:
            break
        if pending:
            time.sleep(0.5)
    unproven = [
        {"interface": interface, "peer": name, "address": address, "said": said, "small": not ping(run, interface, address, _SMALL)}
        for (interface, name, address), said in pending.items()
    ]
    if unproven and module.params["required"]:
        said = "\n".join(fabric_report.lines(unproven, mtu))
        module.fail_json(msg=f"{len(unproven)} of {len(targets)} paths are not proven:\n{said}", unproven=unproven)
    proven = [f"{interface} -> {name} ({address}): {mtu} bytes" for interface, name, address in targets if (interface, name, address) not in pending]
    module.exit_json(changed=False, proven=proven, unproven=unproven)


if __name__ == "__main__":
    main()
