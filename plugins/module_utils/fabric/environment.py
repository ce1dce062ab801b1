# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network variables of every rank: addresses, interfaces, and the RDMA devices of NCCL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import entry, resolve_transport


def variables(
    topology: str,
    ports: Sequence[tuple[int, ...]],
    address: str,
    interface: str,
    hcas: Sequence[str],
    transport: str = "auto",
) -> dict[str, str]:
    """Return the variables that keep every library on the fabric. NCCL's GID index stays unset: NCCL picks it per
    device. ``ports`` are the cabled ones of each node.

    Sockets, which NCCL, Gloo and Ray start with, use ``interface``. With RoCE, data uses both PCIe functions of every
    cabled port. Sources:
    eugr/spark-vllm-docker, NETWORKING.md (rings, merging the PCIe functions of a pair); NVIDIA dgx-spark-playbooks,
    nccl; the distributed-vllm notes for a mixed cluster, whose nodes must all use the same transport and protocol.
    """
    result = {
        "VLLM_HOST_IP": address,
        "NCCL_SOCKET_IFNAME": interface,
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
        "UCX_NET_DEVICES": interface,
    }
    shape = entry(topology)
    if resolve_transport(transport, topology) == "socket":
        return result | {"NCCL_IB_DISABLE": "1"} | ({} if shape.qsfp else shape.variables(ports))
    return result | {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": ",".join(hcas)} | shape.variables(ports)


def transport(environment: Mapping[str, str]) -> str:
    """Return the transport that a rank's variables select for NCCL between nodes with RoCE.

    Source: NCCL 2.30, src/transport/net_ib/init.cc (NCCL_IB_DISABLE), src/plugin/net.cc (NCCL_NET, in any case).
    """
    sockets = environment.get("NCCL_IB_DISABLE") == "1" or environment.get("NCCL_NET", "").lower() == "socket"
    return "socket" if sockets else "roce"
