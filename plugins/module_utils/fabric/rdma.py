# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evaluate a node's network facts: the GID index of its rails, and links that are slower than a Spark's."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

ROCE_V2 = "RoCE v2"
_CONNECTX_DRIVER = "mlx5_core"
#: The two PCIe halves of a Spark's ConnectX-7. A half has one function per port; they share its link.
_FUNCTION = re.compile(r"(000[02]:01:00)\.[01]")
_WIDTH, _GIGATRANSFERS, _MEGABITS = 4, 32.0, 200000


def gid_index(fabric: Mapping[str, Any], hcas: Sequence[str], addresses: Sequence[str]) -> tuple[int | None, list[Problem]]:
    """Return the one index at which every HCA has the RoCE v2 GID of its IPv4 address, for NCCL_IB_GID_INDEX.

    ``fabric`` is from fabric_info; ``addresses`` are the rails', in the order of ``hcas``, with or without prefix
    length. Returns None with problems if an HCA has no such GID or the indices differ, None without problems if there
    is no HCA.
    If unset, NCCL 2.21 and newer selects an index per device. That is better, because an index changes when IPv6
    addresses appear or disappear (NVIDIA/nccl issues 1333 and 2157).
    """
    problems: list[Problem] = []
    found: dict[str, set[int]] = {}
    for hca, address in zip(hcas, addresses, strict=True):
        found[hca], wrong = _indices(fabric["rdma"], hca, ipaddress.IPv4Interface(address).ip)
        problems += wrong
    if problems or not found:
        return None, problems
    if common := set.intersection(*found.values()):
        return min(common), []
    indices = ", ".join(f"{hca} has {' and '.join(str(index) for index in sorted(some))}" for hca, some in found.items())
    return None, [
        Problem(
            "rdma.gids",
            f"the {ROCE_V2} GIDs of the rails have different indices: {indices}",
            "one index for all, because NCCL_IB_GID_INDEX is one number",
            "leave NCCL_IB_GID_INDEX unset, or remove the IPv6 addresses of the rails",
        )
    ]


def _indices(devices: Mapping[str, Any], hca: str, address: ipaddress.IPv4Address) -> tuple[set[int], list[Problem]]:
    """Return the indices of an HCA's RoCE v2 GIDs of one address, and a problem if it has none."""
    if hca not in devices:
        present = ", ".join(sorted(devices)) or "none"
        return set(), [Problem(f"rdma[{hca}]", f"there is no {hca}, only {present}", "the RDMA device of each rail", "check `ibv_devices`")]
    wanted = ipaddress.IPv6Address(f"::ffff:{address}")
    version_2 = {entry["index"]: ipaddress.IPv6Address(entry["gid"]) for entry in devices[hca]["gids"] if entry["type"] == ROCE_V2}
    found = {index for index, gid in version_2.items() if gid == wanted}
    if found:
        return found, []
    others = ", ".join(f"{index}: {gid}" for index, gid in version_2.items()) or "none"
    problem = Problem(
        f"rdma[{hca}].gids",
        f"no {ROCE_V2} GID of {address} on {hca} (its {ROCE_V2} GIDs: {others})",
        f"a GID of {address}, which the kernel adds with the address",
        "rerun with --tags qsfp_netplan",
    )
    return set(), [problem]


def pinned(node: Mapping[str, Any], fabric: Mapping[str, Any]) -> tuple[dict[str, str], list[Problem]]:
    """Return a planned node's environment, with NCCL_IB_GID_INDEX if it has RDMA. ``fabric`` is from fabric_info."""
    rails = [rail for rail in node["rails"] if rail["hca"]]
    index, problems = gid_index(fabric, [rail["hca"] for rail in rails], [rail["address"] for rail in rails])
    return {**node["environment"], **({} if index is None else {"NCCL_IB_GID_INDEX": str(index)})}, problems


def degraded(interfaces: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each ConnectX link that is slower than a Spark's.

    A Spark has PCIe x4 at 32 GT/s for each half, and 200000 Mb/s for each port with carrier. ``interfaces`` are from
    fabric_info. Unknown values are skipped. A link with full values may still carry only 13 Gb/s; only load shows that.
    Sources: servethehome.com, "The NVIDIA GB10 ConnectX-7 200GbE networking is really different" (x4 at 32 GT/s each half);
    forums.developer.nvidia.com topic 367853 (x2 on an ASUS GX10) and tonyd2wild/DeepSeek-v4-Flash issue 35 (firmware before
    2026-04; fixed through fwupdmgr); NVIDIA dgx-spark-playbooks, prevalidation of spark_cluster_setup (200000Mb/s).
    """
    halves: dict[str, list[str]] = {}
    for name, found in sorted(interfaces.items()):
        if half := _half(found):
            halves.setdefault(half, []).append(name)
    return [
        *(
            f"{' and '.join(names)}: the PCIe link of {half} runs x{pci['width'] or '?'} at {pci['speed']}; x4 at 32.0 GT/s is expected. "
            "Update the firmware (fwupdmgr refresh, fwupdmgr update), then switch the node off and on: a reboot is not enough."
            for half, names in sorted(halves.items())
            if _is_slow_pci(pci := interfaces[names[0]]["pci"])
        ),
        *(
            f"{name}: the link has {interfaces[name]['speed']} Mb/s; {_MEGABITS} are expected. "
            "Check the cable and the speed of the switch's port. "
            "Then update the firmware (fwupdmgr update), and switch the node off and on."
            for names in halves.values()
            for name in names
            if _is_slow_link(interfaces[name])
        ),
    ]


def _half(interface: Mapping[str, Any]) -> str:
    """Return the PCIe half of a ConnectX interface, "" for another interface."""
    pci = interface["pci"]
    function = _FUNCTION.fullmatch(pci["address"]) if pci and interface["driver"] == _CONNECTX_DRIVER else None
    return function[1] if function else ""


def _is_slow_pci(pci: Mapping[str, Any]) -> bool:
    rate = re.match(r"[\d.]+(?= GT/s)", pci["speed"])
    narrow = pci["width"] is not None and pci["width"] < _WIDTH
    return narrow or (rate is not None and float(rate[0]) < _GIGATRANSFERS)


def _is_slow_link(interface: Mapping[str, Any]) -> bool:
    return interface["carrier"] and interface["speed"] is not None and interface["speed"] < _MEGABITS
