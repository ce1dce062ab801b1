# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify that every rail of the fabric carries packets of the full MTU.

Pings each peer of each rail, bound to the rail's interface, with a packet of exactly the MTU and fragmentation
forbidden. If the peers' hardware addresses are given, the reply must come from the device with the address. A cached
reply of another device is deleted, and the path is tried again.
To verify both directions, run it on every node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_probe
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import report as fabric_report


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``rails``: The rails, as in the plan.
    ``mtu``: The MTU that every path must carry.
    ``timeout``: Seconds for retries on a rail without reply, because links and peers may come up late.
    ``required``: Whether a path that cannot be verified is a failure.
    ``samples``: Small packets to send over each verified path to measure its round-trip time; 0 for none.
    """

    rails: Sequence[Mapping[str, Any]] = field(metadata=argument_spec.RAILS["rails"])
    mtu: int
    timeout: int = 20
    required: bool = True
    samples: int = 0


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {verified, unverified, rtts}, after the last try of every path.

    ``verified``: A line for each rail and peer.
    ``unverified``: Each other path as {interface, peer, address, mac, reported, small}; ``mac`` is "" if unknown, and
    ``small`` says whether a packet of 576 bytes arrives, so that only the MTU is wrong.
    ``rtts``: {interface, peer, lost_percent, min_ms, avg_ms, max_ms} of each verified path, null where unknown.
    """
    targets, command = io_probe.targets(given.rails), runner(module)
    unverified = io_probe.unverified_paths(command, targets, given.mtu, given.timeout)
    if unverified and given.required:
        summary = f"{len(unverified)} of {len(targets)} paths could not be verified:"
        message = "\n".join([summary, *fabric_report.lines(unverified)])
        return {"failed": True, "msg": message, "unverified": unverified}
    failed = [(path["interface"], path["address"]) for path in unverified]
    good = [target for target in targets if (target["interface"], target["address"]) not in failed]
    verified = [f"{each['interface']} -> {each['peer']} ({each['address']}): {given.mtu} bytes" for each in good]
    rtts = [io_probe.round_trip(command, target, given.samples) for target in good] if given.samples else []
    return {"changed": False, "verified": verified, "unverified": unverified, "rtts": rtts}
