#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fabric_probe
short_description: Verify that every rail of the fabric carries packets of the full MTU
version_added: 0.1.0
description:
  - Pings each peer of each rail, bound to the rail's interface, with a packet of exactly the MTU and fragmentation
    forbidden.
  - If the peers' hardware addresses are given, the reply must come from the device with the address. A cached reply of
    another device is deleted, and the path is tried again.
  - To verify both directions, run it on every node.
options:
  timeout:
    description: Seconds for retries on a rail without reply, because links and peers may come up late.
    type: int
    default: 20
  required:
    description: Whether the module fails if it cannot verify a path. Otherwise RV(unverified) lists the path.
    type: bool
    default: true
  samples:
    description: Small packets to send over each verified path to measure its round-trip time; 0 to leave it out.
    type: int
    default: 0
seealso:
  - module: gb10.cluster.fabric_info
  - module: gb10.cluster.netplan_confirm
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.rails
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Verify the fabric
  gb10.cluster.fabric_probe:
    rails: "{{ gb10_plan.node.rails }}"
    mtu: "{{ gb10_plan.mtu }}"
  become: true
"""

RETURN = r"""
verified:
  description: The verified paths, a line for each rail and peer.
  returned: success
  type: list
  elements: str
  sample: ["enp1s0f1np1 -> spark2 (10.110.0.2): 9000 bytes"]
unverified:
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
    mac:
      description: The hardware address of the device at its other end, empty if it is not known.
      type: str
    reported:
      description: The problem.
      type: str
    small:
      description: Whether a packet of 576 bytes arrives, so that only the MTU is wrong.
      type: bool
rtts:
  description: The round-trip times of the verified paths, empty without O(samples). Unknown values are null.
  returned: success
  type: list
  elements: dict
  contains:
    interface:
      description: The rail.
      type: str
    peer:
      description: The node at its other end.
      type: str
    lost_percent:
      description: The part of the packets without reply.
      type: float
    min_ms:
      description: The shortest time in milliseconds.
      type: float
    avg_ms:
      description: The mean time.
      type: float
    max_ms:
      description: The longest time.
      type: float
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.argument_spec import RAILS
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_probe
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import report as fabric_report


def main() -> None:
    """Try every path until all are verified or the timeout ends."""
    module = AnsibleModule(
        argument_spec={
            **RAILS,
            "timeout": {"type": "int", "default": 20},
            "required": {"type": "bool", "default": True},
            "samples": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    mtu = module.params["mtu"]
    targets = io_probe.targets(module.params["rails"])
    run, samples = runner(module), module.params["samples"]
    unverified = io_probe.unverified_paths(run, targets, mtu, module.params["timeout"])
    if unverified and module.params["required"]:
        summary = f"{len(unverified)} of {len(targets)} paths could not be verified:"
        module.fail_json(msg="\n".join([summary, *fabric_report.lines(unverified)]), unverified=unverified)
    failed = [(path["interface"], path["address"]) for path in unverified]
    good = [target for target in targets if (target["interface"], target["address"]) not in failed]
    verified = [f"{target['interface']} -> {target['peer']} ({target['address']}): {mtu} bytes" for target in good]
    rtts = [io_probe.round_trip(run, target, samples) for target in good] if samples else []
    module.exit_json(changed=False, verified=verified, unverified=unverified, rtts=rtts)


if __name__ == "__main__":
    main()
