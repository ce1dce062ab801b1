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

import json
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.argument_spec import RAILS
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run, runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import parse as fabric_text
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import report as fabric_report

#: Bytes of the IPv4 and ICMP headers, which the ping payload excludes.
_HEADERS = 28
#: Every IPv4 link carries this size. It distinguishes a path with a smaller MTU from a broken one.
_SMALL = 576


def ping(run: Run, interface: str, address: str, size: int) -> str:
    """Send one packet of exactly `size` bytes. Returns "" or the error."""
    status, stdout, stderr = run(["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", str(size - _HEADERS), "-I", interface, address])
    if status == 0:
        return ""
    reported = [line for line in (stderr or stdout).splitlines() if line.strip() and "statistics" not in line]
    return reported[-1].strip() if reported else f"ping failed with status {status}"


def round_trip(run: Run, target: dict, samples: int) -> dict:
    """Return the entry of `rtts` of one path."""
    argv = ["ping", "-n", "-q", "-c", str(samples), "-i", "0.2", "-W", "1", "-I", target["interface"], target["address"]]
    return {"interface": target["interface"], "peer": target["peer"], **fabric_text.round_trip(run(argv)[1])}


def misdirected(run: Run, interface: str, address: str, mac: str) -> str:
    """Return a sentence if another device than the rail's replied, and delete that reply, which may be old."""
    _status, stdout, _stderr = run(["ip", "-json", "neighbour", "show", "to", address, "dev", interface])
    answered = next((entry.get("lladdr") for entry in json.loads(stdout or "[]")), None)
    if not mac or answered in (None, mac):
        return ""
    run(["ip", "neighbour", "delete", address, "dev", interface])
    return f"{answered} replied instead of {mac}, the device with the address"


def probe(run: Run, target: dict, mtu: int) -> dict:
    """Try one path. Returns {} if it is verified, else the known part of its entry for `unverified`."""
    reported = ping(run, target["interface"], target["address"], mtu)
    if reported:
        return {**target, "reported": reported, "small": None}
    reported = misdirected(run, target["interface"], target["address"], target["mac"])
    return {**target, "reported": reported, "small": False} if reported else {}


def unverified_paths(run: Run, targets: list[dict], mtu: int, timeout: int) -> list[dict]:
    """Try the paths until all are verified or the timeout ends. Returns the entries of `unverified`."""
    deadline = time.monotonic() + timeout
    unverified = targets
    while unverified:
        unverified = [failed for target in unverified if (failed := probe(run, target, mtu))]
        if time.monotonic() > deadline:
            break
        if unverified:
            time.sleep(0.5)
    for path in unverified:
        if path["small"] is None:
            path["small"] = not ping(run, path["interface"], path["address"], _SMALL)
            too_large = f"small packets arrive, but not packets of {mtu} bytes"
            path["reported"] = too_large if path["small"] else f"no reply ({path['reported']})"
    return unverified


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
    targets = [
        {"interface": rail["interface"], "peer": name, "address": address, "mac": rail["macs"].get(name, "")}
        for rail in module.params["rails"]
        for name, address in rail["peers"].items()
    ]
    run, samples = runner(module), module.params["samples"]
    unverified = unverified_paths(run, targets, mtu, module.params["timeout"])
    if unverified and module.params["required"]:
        summary = f"{len(unverified)} of {len(targets)} paths could not be verified:"
        module.fail_json(msg="\n".join([summary, *fabric_report.lines(unverified)]), unverified=unverified)
    failed = [(path["interface"], path["address"]) for path in unverified]
    good = [target for target in targets if (target["interface"], target["address"]) not in failed]
    verified = [f"{target['interface']} -> {target['peer']} ({target['address']}): {mtu} bytes" for target in good]
    rtts = [round_trip(run, target, samples) for target in good] if samples else []
    module.exit_json(changed=False, verified=verified, unverified=unverified, rtts=rtts)


if __name__ == "__main__":
    main()
