# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of a verification: the nodes as the checks see them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, WARNING, Found
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import schema as fabric_schema
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.health.schema import ReadNode

GROUPS = ("hardware", "fabric", "nccl", "runtime", "serving", "security")
#: A check of a running cluster has no others.
SEVERITIES = (ERROR, WARNING)
#: How a check was tested.
RECORDED = "unit tests of recorded facts; effect reported by others"


def groups(run_tags: Sequence[str], skip_tags: Sequence[str]) -> list[str]:
    """Return the groups of checks that the tags of a run select, all without such a tag."""
    chosen = [group for group in GROUPS if group in run_tags] or GROUPS
    return [group for group in chosen if group not in skip_tags]


@dataclass(frozen=True, kw_only=True)
class VerifiedNode(ReadNode):
    """One node of the inventory, with the result of cluster_verify_info.

    ``paths`` are fabric_probe's ``unverified``, ``probe`` are vllm_gpu_probe's ``checks``. The facts were read between
    ``started`` and ``finished``, in seconds since 1970 by the controller's clock. ``endpoint``: the API's URL for
    clients.
    """

    paths: Sequence[Mapping[str, Any]] = ()
    probe: Sequence[Mapping[str, Any]] = ()
    started: float = 0.0
    finished: float = 0.0
    endpoint: str = ""

    def part(self, name: str) -> Any:
        """Return a part of the facts, {} if it is unknown."""
        return self.facts.get(name) or {}

    @property
    def kind(self) -> tuple[str, str]:
        """The GPU's capability and the product. Hardware is compared between nodes of one kind only."""
        gpus = self.part("gpu").get("gpus") or [{}]
        return gpus[0].get("capability") or "", self.facts.get("product") or ""

    @cached_property
    def network(self) -> fabric_schema.Network:
        """The network facts."""
        known = {
            "interfaces": self.part("interfaces"),
            "rdma": self.part("rdma"),
            "unreadable": self.facts.get("unreadable") or (),
        }
        return fabric_schema.network({**known, "infiniband": self.facts.get("infiniband") or False})

    @property
    def addresses(self) -> set[str]:
        """The node's addresses without prefix length, also the planned ones of its rails."""
        return self.network.ipv4 | {address.split("/")[0] for rail in self.rails.values() for address in rail}

    @cached_property
    def rails(self) -> dict[str, tuple[str, ...]]:
        """The addresses with prefix length of each rail: an interface that the fabric's netplan file configures.

        On a cluster that another tool set up, a rail is an interface of a QSFP port, or with an RDMA device, that has
        an IPv4 address.
        """
        planned = self.part("planned")
        found = self.network.interfaces
        names = {twin.interface for twins in SPARK_PORTS.values() for twin in twins} | set(self.network.hcas)
        others = {name: found[name].addresses for name in found if name in names and found[name].addresses}
        return dict(sorted(({} if planned else others).items())) | {
            name: tuple(planned[name]["addresses"]) for name in sorted(planned)
        }


@dataclass(frozen=True)
class Cluster:
    """All nodes of the inventory."""

    nodes: Sequence[VerifiedNode]

    @property
    def read(self) -> list[VerifiedNode]:
        """The nodes with facts."""
        return [node for node in self.nodes if node.facts]

    @property
    def mtu(self) -> int:
        """The largest planned MTU of the rails, else the largest found one; 0 without a rail."""
        planned = [rail["mtu"] for node in self.read for rail in node.part("planned").values() if rail["mtu"]]
        found = [
            node.network.interfaces[rail].mtu
            for node in self.read
            for rail in node.rails
            if rail in node.network.interfaces
        ]
        return max(planned or found or [0])

    def peers(self, node: VerifiedNode, rail: str) -> dict[str, tuple[str, str]]:
        """Return {other node: (address, hardware address)} of the rails in the subnet of a node's rail."""
        own = [ipaddress.IPv4Interface(address).network for address in node.rails[rail]]
        return {
            other.name: (
                address.split("/")[0],
                other.network.interfaces[name].mac if name in other.network.interfaces else "",
            )
            for other in self.read
            if other.name != node.name
            for name, addresses in other.rails.items()
            for address in addresses
            if ipaddress.IPv4Interface(address).network in own
        }


#: What finds a check's findings.
Detect = Callable[[Cluster], Iterable[Found]]


def of_nodes(texts: Callable[[VerifiedNode], Iterable[str]]) -> Detect:
    """Return a check of each read node by itself. ``texts``: its findings."""
    return lambda cluster: ((node.name, text) for node in cluster.read for text in texts(node))
