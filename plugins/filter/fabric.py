# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: RDMA settings of the fabric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def pinned_gid_index(plan: Fact, fabric_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a node with its RDMA devices' current NCCL_IB_GID_INDEX in the environment."""
    from ansible_collections.gb10.cluster.plugins.module_utils.fabric import rdma, schema

    given = typed_plan(plan)
    node, rails = given.node, [(rail.hca, rail.address) for rail in given.node.rails]
    environment, problems = rdma.pinned(rails, schema.rdma_devices(plain_data(fabric_facts)["rdma"]))
    if problems:
        raise AnsibleFilterError("; ".join(map(str, problems)))
    return given.at(replace(node, environment={**node.environment, **environment})).facts()


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"pinned_gid_index": pinned_gid_index}
