# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare parts of a node with their options, and read its services. Nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_compare
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.io_rollback import NetplanError
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables, io_rules
from ansible_collections.gb10.cluster.plugins.module_utils.firewall.io_rules import Host
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_server
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray, io_ray_members
from ansible_collections.gb10.cluster.plugins.module_utils.patch import io_apply

#: Why a part cannot be compared.
ERRORS = (ProblemsError, io_nftables.FirewallError, NetplanError, ValueError, OSError)


def _firewall(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    return io_rules.outcome(host, params)


def _network(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """Raises NetplanError if netplan would not take the files."""
    compared = io_compare.compare(host.run, params)
    if compared.refused:
        raise NetplanError(compared.refused)
    found = {"differences": compared.differences, "verified": compared.verified, "diff": compared.diff}
    return {**found, "changed": bool(compared.differences)}


def _patches(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    return io_apply.outcome(host.run, params, host.check_mode)


def _ray(_host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return {reason} for an incomplete Ray, which its role waits for."""
    try:
        return io_ray_members.read(params)
    except io_ray.RayError as error:
        return {"reason": str(error)}


def _server(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smoke test's result as `smoke`, {} without an answer before."""
    found = io_server.read(host.run, params)
    asks = found["answers"] and params["smoke"]
    return {**found, "smoke": io_server.smoke(params, params["smoke"]) if asks else {}}


#: The options and the comparison of each part of of_plan.PARTS.
PARTS: Mapping[str, tuple[Mapping[str, Any], Callable[[Host, Mapping[str, Any]], dict[str, Any]]]] = {
    "peer_firewall": (io_rules.ARGUMENTS, _firewall),
    "qsfp_netplan": (io_compare.ARGUMENTS, _network),
    "vllm_patch": (io_apply.ARGUMENTS, _patches),
    "ray_cluster": (io_ray_members.ARGUMENTS, _ray),
    "vllm_serve": ({**io_server.ARGUMENTS, "smoke": {"type": "dict", "default": {}}}, _server),
}
