# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the rails: link, MTU, addresses, PCIe, RDMA, GIDs, configuration files and full-size frames."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, RUNNING, WARNING, Check, Found
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import adapter, rdma
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Interface
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import NETPLAN_FILE, SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify.existing import of_rule
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import (
    RECORDED,
    Cluster,
    Detect,
    VerifiedNode,
    of_nodes,
)

CONNECTX = "mlx5_core"
_TWINS = {twin.interface: half for twins in SPARK_PORTS.values() for half, twin in enumerate(twins)}


def _rails(node: VerifiedNode) -> Iterator[tuple[str, Interface]]:
    """Yield the existing rails of a node."""
    yield from ((rail, found) for rail in node.rails if (found := node.network.interfaces.get(rail)))


@of_nodes
def _down(node: VerifiedNode) -> Iterator[str]:
    for rail in node.rails:
        found = node.network.interfaces.get(rail)
        if found is None:
            yield f"{rail} does not exist"
        elif not (found.up and found.carrier):
            yield f"{rail} {'has no carrier' if found.up else 'is down'}"


@of_nodes
def _mtu(node: VerifiedNode) -> Iterator[str]:
    for rail, found in _rails(node):
        wanted = node.part("planned").get(rail, {}).get("mtu")
        if wanted and found.mtu != wanted:
            yield f"{rail} has MTU {found.mtu}, but {NETPLAN_FILE} sets {wanted}"


@of_nodes
def _address(node: VerifiedNode) -> Iterator[str]:
    for rail, found in _rails(node):
        planned = node.part("planned").get(rail)
        if planned and sorted(found.addresses) != sorted(planned["addresses"]):
            present = ", ".join(found.addresses) or "no address"
            yield f"{rail} has {present}, but {NETPLAN_FILE} sets {', '.join(planned['addresses'])}"
    host = next((each["VLLM_HOST_IP"] for each in node.part("environments").values() if "VLLM_HOST_IP" in each), "")
    if host and host not in node.network.ipv4:
        yield f"VLLM_HOST_IP is {host}, which no interface of the node has"


def _addressed(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """Yield the node, the rail and each address with prefix length of the existing rails."""
    for node in cluster.read:
        yield from ((node.name, rail, address) for rail, found in _rails(node) for address in found.addresses)


def _duplicate(cluster: Cluster) -> Iterator[Found]:
    owners: dict[str, str] = {}
    for node, rail, address in _addressed(cluster):
        plain = address.split("/")[0]
        if plain in owners:
            yield node, f"{plain} of {rail} is also the address of {owners[plain]}"
        owners.setdefault(plain, f"{rail} of {node}")


def _crossed(cluster: Cluster) -> Iterator[Found]:
    """Find subnets that join the first PCIe half of a node to the second of another."""
    halves: dict[str, dict[int, list[tuple[str, str]]]] = {}
    for node, rail, address in _addressed(cluster):
        if rail in _TWINS:
            network = str(ipaddress.IPv4Interface(address).network)
            halves.setdefault(network, {}).setdefault(_TWINS[rail], []).append((rail, node))
    for network, found in halves.items():
        if len(found) > 1 and len({node for ends in found.values() for _rail, node in ends}) > 1:
            listed = [", ".join(f"{rail} of {node}" for rail, node in found[half]) for half in sorted(found)]
            yield "", f"{network} is on {' and on '.join(listed)}"


@of_nodes
def _same_subnet(node: VerifiedNode) -> Iterator[str]:
    seen: dict[str, str] = {}
    for rail, interface in _rails(node):
        for network in {str(ipaddress.IPv4Interface(address).network) for address in interface.addresses}:
            if (first := seen.setdefault(network, rail)) != rail:
                yield f"{first} and {rail} are both in {network}"


def _paths(cluster: Cluster) -> Iterator[Found]:
    return (
        (node.name, f"{path['interface']} to {path['peer']} ({path['address']}): {path['reported']}")
        for node in cluster.nodes
        for path in node.paths
    )


@of_nodes
def _owners(node: VerifiedNode) -> Iterator[str]:
    for rail, interface in _rails(node):
        files = sorted({owner.file for owner in interface.owners})
        if len(files) > 1:
            yield f"{rail} is configured by {' and '.join(files)}"


@of_nodes
def _unparsed(node: VerifiedNode) -> Iterator[str]:
    yield from (f"{file.file}: {file.reason}" for file in node.network.unreadable)


@of_nodes
def _degraded(node: VerifiedNode) -> Iterator[str]:
    yield from (sentence.partition(". ")[0] for sentence in rdma.degraded(node.network.interfaces))


@of_nodes
def _half(node: VerifiedNode) -> Iterator[str]:
    there = {name for name, found in node.network.interfaces.items() if found.driver == CONNECTX and name in _TWINS}
    missing = sorted(_TWINS.keys() - there)
    if there and missing:
        yield f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"


def _reported(fault: str, text: str) -> Detect:
    """Return a check for a fault of the adapter in the kernel's log."""
    return of_nodes(lambda node: [text] if fault in (node.facts.get("adapter") or ()) else [])


@of_nodes
def _rdma(node: VerifiedNode) -> Iterator[str]:
    for rail, interface in _rails(node):
        device = node.network.rdma.get(interface.hca)
        if interface.driver == CONNECTX and device is None:
            yield f"{rail} has no RDMA device"
        elif interface.driver == CONNECTX and device and interface.carrier and device.state != "ACTIVE":
            yield f"{interface.hca} of {rail} is {device.state or 'in an unknown state'}"
    if node.network.rdma and not node.network.infiniband:
        yield "/dev/infiniband is missing, so that programs cannot use RDMA"


@of_nodes
def _gid(node: VerifiedNode) -> Iterator[str]:
    for _rail, interface in _rails(node):
        if interface.carrier and interface.hca in node.network.rdma:
            for address in interface.addresses:
                _index, problems = rdma.pinned([(interface.hca, address)], node.network.rdma)
                yield from (problem.found for problem in problems)


_SITE = "run site.yml --tags qsfp_netplan, or correct the interface by hand"
_FIRMWARE = "run fwupdmgr refresh and fwupdmgr update, then switch the node off and on: a reboot is not enough"

_fabric = partial(Check[Cluster], RUNNING, topic="fabric", tested=RECORDED)

CHECKS = (
    _fabric(
        "rail-down",
        ERROR,
        expected="each rail exists, is up, and has carrier",
        why="NCCL uses only the other rails, or none",
        fix="check the cable, the port and the other end; run ip link set dev RAIL up",
        source="Linux, sysfs-class-net (carrier)",
        detect=_down,
    ),
    _fabric(
        "rail-mtu",
        ERROR,
        expected="the MTU of the netplan file",
        why="RDMA between different MTUs ends with IBV_WC_RETRY_EXC_ERR, and large packets are lost",
        fix=_SITE,
        source="MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#104 (a firmware reboot reset one device to 1500)",
        detect=_mtu,
    ),
    _fabric(
        "mtu-differs",
        ERROR,
        expected="the same MTU of a rail on all nodes",
        why="RDMA between different MTUs ends with IBV_WC_RETRY_EXC_ERR, and large packets are lost",
        fix=_SITE,
        source="MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#104 (a firmware reboot reset one device to 1500)",
        detect=partial(differences.found, "mtu-differs"),
    ),
    _fabric(
        "rail-address",
        ERROR,
        expected="the addresses of the netplan file, and that of VLLM_HOST_IP",
        why="ranks bind to an address that does not exist, or reach another node than expected",
        fix=_SITE,
        source="vLLM, documentation of VLLM_HOST_IP",
        detect=_address,
    ),
    _fabric(
        "address-duplicate",
        ERROR,
        expected="each address on one node only",
        why="packets reach either node, so that ranks hang in turn",
        fix="correct gb10_fabric_addresses or the netplan file of one node",
        source="RFC 5227",
        detect=_duplicate,
    ),
    _fabric(
        "rails-crossed",
        ERROR,
        expected="the same PCIe half at all ends of a subnet",
        why="the addresses of two rails are swapped on a node: the cable joins equal halves, so that no peer answers",
        fix="swap the two addresses in the netplan file of that node",
        source="NVIDIA dgx-spark-playbooks, connect-two-sparks (July 2026)",
        detect=_crossed,
    ),
    _fabric(
        "rails-share-subnet",
        ERROR,
        expected="each rail of a node in its own subnet",
        why="routing is ambiguous, and NCCL's connections fail",
        fix="give both PCIe functions of a port addresses of different subnets",
        source="NVIDIA dgx-spark-playbooks, multi-sparks-through-switch (July 2026)",
        detect=_same_subnet,
    ),
    _fabric(
        "rail-path",
        ERROR,
        expected="a reply of the right device to a packet of the full MTU, on each rail from each node",
        why="NCCL hangs or fails at the first large message over this rail",
        fix="check cable, MTU and addresses of both ends, and the MTU of the switch's ports",
        source="eugr/spark-vllm-docker, NETWORKING.md",
        detect=_paths,
    ),
    _fabric(
        "netplan-second",
        ERROR,
        expected="one file that configures each rail",
        why="netplan merges the files, so that after its next run a rail has two addresses or another MTU",
        fix="remove the other file, or set gb10_fabric_replace_existing: true and run site.yml",
        source=(
            "NVIDIA Sync (99-nvidia-sync-cluster.yaml), eugr (98-spark-vllm-docker.yaml), NVIDIA's playbooks "
            "(40-cx7.yaml)"
        ),
        detect=_owners,
    ),
    _fabric(
        "netplan-unreadable",
        WARNING,
        expected="all network configuration files can be parsed",
        why="netplan apply fails, or an unknown file configures a rail",
        fix="correct the file; netplan generate shows the line",
        source="netplan(5)",
        detect=_unparsed,
    ),
    _fabric(
        "link-slow",
        WARNING,
        expected="PCIe x4 at 32 GT/s for each half, and 200000 Mb/s for each port",
        why="the rail has half of its bandwidth or less",
        fix=_FIRMWARE,
        source="servethehome.com; forums.developer.nvidia.com topic 367853; tonyd2wild/DeepSeek-v4-Flash issue 35",
        detect=_degraded,
    ),
    _fabric(
        "pcie-half-missing",
        ERROR,
        expected="all four network devices of the ConnectX-7",
        why="a part of the adapter is lost, often after a warm reboot",
        fix="switch the node off, disconnect its power supply for a minute, and start it",
        source="reports of lost devices after a warm reboot",
        detect=_half,
    ),
    _fabric(
        "adapter-power",
        WARNING,
        expected="an adapter that was there at a cold boot",
        why="after a hot-plug or a warm reboot its ports carried 13 Gb/s; the line never appears after a cold boot",
        fix="switch the node off, disconnect its power supply for a minute, and start it",
        source="ajclark/dgx-spark (2026-09-08); NVIDIA/dgx-spark-playbooks#108",
        detect=_reported(adapter.POWER, "the kernel: PCIe slot power capability was not advertised"),
    ),
    _fabric(
        "adapter-failed",
        ERROR,
        expected="no fatal error of PCIe",
        why="the network adapter failed in hardware; resets of it can hang the host",
        fix="switch the node off, disconnect its power supply for a minute, and start it; if it returns, ask NVIDIA's "
        "support",
        source="MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#146",
        detect=_reported(adapter.FAILED, "the kernel: a fatal PCIe error since the boot"),
    ),
    _fabric(
        "rdma-inactive",
        ERROR,
        expected="an ACTIVE RDMA device behind each rail",
        why="NCCL uses sockets, at a third of the bandwidth or less",
        fix="run modprobe mlx5_ib and modprobe ib_uverbs; check rdma link show and journalctl -k",
        source="Linux, sysfs-class-infiniband (state)",
        detect=_rdma,
    ),
    _fabric(
        "gid-missing",
        ERROR,
        expected="a RoCE v2 GID for the IPv4 address of each rail",
        why="NCCL cannot connect over this rail",
        fix=_SITE,
        source="NVIDIA/nccl issues 1333 and 2157",
        detect=_gid,
    ),
    *(of_rule(name, "fabric") for name in ("nccl-ib-hca-half", "nccl-gid-index", "gpudirect-rdma")),
)
