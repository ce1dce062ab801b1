# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evaluate a node's network facts: the GID index of its rails, and links that are slower than a Spark's."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Interface, PciLink, RdmaDevice

ROCE_V2 = "RoCE v2"
_CONNECTX_DRIVER = "mlx5_core"
#: The two PCIe halves of a Spark's ConnectX-7. A half has one function per port; they share its link.
_FUNCTION = re.compile(r"(000[02]:01:00)\.[01]")
_WIDTH, _GIGATRANSFERS, _MEGABITS = 4, 32.0, 200000


def pinned(rails: Iterable[tuple[str, str]], devices: Mapping[str, RdmaDevice]) -> tuple[dict[str, str], list[Problem]]:
    """Return NCCL_IB_GID_INDEX: the one index at which every HCA has the RoCE v2 GID of its IPv4 address.

    ``devices`` are all of the node; ``rails`` are (hca, address with or without prefix length).
    Returns {} with problems if an HCA has no such GID or the indices differ, {} without problems if there is no HCA.
    If unset, NCCL 2.21 and newer selects an index per device. That is better, because an index changes when IPv6
    addresses appear or disappear (NVIDIA/nccl issues 1333 and 2157).
    """
    problems: list[Problem] = []
    found: dict[str, set[int]] = {}
    for hca, address in ((hca, address) for hca, address in rails if hca):
        if hca in devices:
            found[hca], missing = _indices(hca, devices[hca], ipaddress.IPv4Interface(address).ip)
            problems += missing
        else:
            present = ", ".join(sorted(devices)) or "none"
            problems.append(
                Problem(
                    f"rdma[{hca}]",
                    f"there is no {hca}, only {present}",
                    "the RDMA device of each rail",
                    "check `ibv_devices`",
                )
            )
    if problems or not found:
        return {}, problems
    if common := set.intersection(*found.values()):
        return {"NCCL_IB_GID_INDEX": str(min(common))}, []
    indices = ", ".join(
        f"{hca} has {' and '.join(str(index) for index in sorted(some))}" for hca, some in found.items()
    )
    return {}, [
        Problem(
            "rdma.gids",
            f"the {ROCE_V2} GIDs of the rails have different indices: {indices}",
            "one index for all, because NCCL_IB_GID_INDEX is one number",
            "leave NCCL_IB_GID_INDEX unset, or remove the IPv6 addresses of the rails",
        )
    ]


def _indices(hca: str, device: RdmaDevice, address: ipaddress.IPv4Address) -> tuple[set[int], list[Problem]]:
    """Return the indices of an address in the GID table of a device, and a problem if there is none."""
    version_2 = {entry.index: ipaddress.IPv6Address(entry.gid) for entry in device.gids if entry.type == ROCE_V2}
    if indices := {index for index, gid in version_2.items() if gid.ipv4_mapped == address}:
        return indices, []
    others = ", ".join(f"{index}: {gid}" for index, gid in version_2.items()) or "none"
    found = f"no {ROCE_V2} GID of {address} on {hca} (its {ROCE_V2} GIDs: {others})"
    expected = f"a GID of {address}, which the kernel adds with the address"
    return indices, [Problem(f"rdma[{hca}].gids", found, expected, "rerun with --tags qsfp_netplan")]


def degraded(interfaces: Mapping[str, Interface]) -> list[str]:
    """Return a sentence for each ConnectX link that is slower than a Spark's.

    A Spark has PCIe x4 at 32 GT/s for each half, and 200000 Mb/s for each port with carrier. Unknown values are
    skipped. A link with full values may still carry only 13 Gb/s; only load shows that.
    Sources: servethehome.com, "The NVIDIA GB10 ConnectX-7 200GbE networking is really different" (x4 at 32 GT/s each
    half); forums.developer.nvidia.com topic 367853 (x2 on an ASUS GX10) and tonyd2wild/DeepSeek-v4-Flash issue 35
    (firmware before 2026-04; fixed through fwupdmgr); NVIDIA dgx-spark-playbooks, prevalidation of spark_cluster_setup
    (200000Mb/s).
    """
    halves: dict[str, dict[str, Interface]] = {}
    for name, found in sorted(interfaces.items()):
        function = _FUNCTION.fullmatch(found.pci.address) if found.pci and found.driver == _CONNECTX_DRIVER else None
        if function:
            halves.setdefault(function[1], {})[name] = found
    slow = [
        _slow_half(half, list(members), next(iter(members.values())).pci) for half, members in sorted(halves.items())
    ]
    return [sentence for sentence in slow if sentence] + [
        f"{name}: the link has {found.speed} Mb/s; {_MEGABITS} are expected. "
        "Check the cable and the speed of the switch's port. "
        "Then update the firmware (fwupdmgr update), and switch the node off and on."
        for members in halves.values()
        for name, found in members.items()
        if found.carrier and found.speed is not None and found.speed < _MEGABITS
    ]


def _slow_half(half: str, names: list[str], link: PciLink | None) -> str:
    """Return a sentence if the PCIe link of a half is slow, else ""."""
    rate = re.match(r"[\d.]+(?= GT/s)", link.speed) if link else None
    narrow = link is not None and link.width is not None and link.width < _WIDTH
    if link is None or not (narrow or (rate and float(rate[0]) < _GIGATRANSFERS)):
        return ""
    return (
        f"{' and '.join(names)}: the PCIe link of {half} runs x{link.width or '?'} at {link.speed}; x4 at 32.0 "
        "GT/s is expected. Update the firmware (fwupdmgr refresh, fwupdmgr update), then switch the node off "
        "and on: a reboot is not enough."
    )
