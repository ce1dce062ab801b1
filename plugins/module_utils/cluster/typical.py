# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Typical facts of a DGX Spark or a Jetson Thor, for a plan before the hardware is there.

Sources for a Spark: MemTotal and free memory as owners reported them (MiaAI GLM-EXL3#47); DGX OS 7.5 with driver 580,
kernel 6.17 and nvcc 13.0; QSFP ports and their PCIe functions as in fabric/topology. For a Thor: 125748 MiB as
llama.cpp reports it, JetPack 7 (vllm-project/vllm#34470), and no compiler on the host (mudler/vllm.cpp#168).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology

#: The first letters of a Thor's Ethernet devices. In gb10_fabric_interface, they mark a node as a Thor.
_THOR_ETHERNET = "mgbe"
_SPARK: Mapping[str, Any] = {
    "gpu": {
        "gpus": [{"name": "NVIDIA GB10", "capability": "12.1"}],
        "driver_version": "580.173.02",
        "cuda_version": "13.0",
        "memory_bytes": 127_600_748 * 1024,
        "reason": "",
    },
    "kernel": "6.17.0-1031-nvidia",
    "infiniband": True,
    "toolkit": {
        "home": "/usr/local/cuda",
        "release": "13.0.88",
        "architectures": ["sm_110", "sm_121"],
        "host_compiler": True,
    },
}
_THOR: Mapping[str, Any] = {
    "gpu": {
        "gpus": [{"name": "NVIDIA Thor", "capability": "11.0"}],
        "driver_version": "580.00",
        "cuda_version": "13.0",
        "memory_bytes": 125_748 << 20,
        "reason": "",
    },
    "kernel": "6.8.12-tegra",
    "infiniband": False,
    "toolkit": None,
}


def observed(settings: Mapping[str, Any], address: str) -> dict[str, Any]:
    """Return the facts of a node as the module node_info returns them, with the cables of its ``settings``.

    ``address``: the management address. Without gb10_fabric_ports the cables are at port 1, in a ring at both ports.
    """
    interface = str(settings.get("gb10_fabric_interface") or "")
    thor = interface.startswith(_THOR_ETHERNET)
    interfaces = {"lo": _interface("127.0.0.1/8"), "enP7s7": _interface(*_with_prefix(address))}
    rdma: dict[str, Any] = {}
    if thor:
        interfaces[interface] = _interface()
    for port, twins in topology.SPARK_PORTS.items() if not thor else ():
        for twin in twins:
            cable = port in _ports(settings, interface)
            interfaces[twin.interface] = {**_interface(), "carrier": cable, "hca": twin.hca}
            state = "ACTIVE" if cable else "DOWN"
            rdma[twin.hca] = {"interface": twin.interface, "state": state, "link_layer": "Ethernet", "gids": []}
    return {**(_THOR if thor else _SPARK), "interfaces": interfaces, "rdma": rdma, "listeners": []}


def _ports(settings: Mapping[str, Any], interface: str) -> tuple[int, ...]:
    """Return the cabled ports; a value that is not a list of ports is a problem of the plan."""
    given = settings.get("gb10_fabric_ports")
    if isinstance(given, list | tuple):
        return tuple(int(port) for port in given if str(port).isdecimal())
    if settings.get("gb10_fabric_topology") == "ring":
        return tuple(topology.SPARK_PORTS)
    named = (port for port, twins in topology.SPARK_PORTS.items() if interface in (twin.interface for twin in twins))
    return (next(named, 1),)


def _with_prefix(address: str) -> list[str]:
    """Return an IPv4 address with its prefix; a host name has no address yet."""
    try:
        return [f"{ipaddress.IPv4Address(address)}/24"]
    except ValueError:
        return []


def _interface(*addresses: str) -> dict[str, Any]:
    # The address is needed for a plan, and never written.
    return {
        "mac": "02:00:00:00:00:01",
        "mtu": 1500,
        "addresses": list(addresses),
        "up": True,
        "carrier": True,
        "owners": [],
    }
