# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare parts of a node with their options, and read its services. Nothing changes.

Each part imports its code when it is compared: a node compiles a module's code in every run.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run

#: Returns the comparison. Raises ProblemsError, ValueError or OSError.
Compare: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
#: Makes a part's options, as an argument_spec, and its comparison, from commands on the node and the path of its nft.
Part: TypeAlias = Callable[[Run, str], tuple[Mapping[str, Any], Compare]]


def _firewall(run: Run, nft: str) -> tuple[Mapping[str, Any], Compare]:
    from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables, io_rules

    def compare(params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return io_rules.outcome(io_rules.Host(run, nft, check_mode=True), params)
        except io_nftables.FirewallError as error:
            raise ValueError(str(error)) from error

    return io_rules.ARGUMENTS, compare


def _network(run: Run, _nft: str) -> tuple[Mapping[str, Any], Compare]:
    from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_compare

    def compare(params: Mapping[str, Any]) -> dict[str, Any]:
        compared = io_compare.compare(run, params)
        if compared.refused:
            raise ValueError(f"Nothing was changed: {compared.refused}")
        found = {"differences": compared.differences, "verified": compared.verified, "diff": compared.diff}
        return {**found, "changed": bool(compared.differences)}

    return io_compare.ARGUMENTS, compare


def _patches(run: Run, _nft: str) -> tuple[Mapping[str, Any], Compare]:
    from ansible_collections.gb10.cluster.plugins.module_utils.patch import io_apply

    return io_apply.ARGUMENTS, lambda params: io_apply.outcome(run, params, check_mode=True)


def _ray(_run: Run, _nft: str) -> tuple[Mapping[str, Any], Compare]:
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray, io_ray_members

    def read(params: Mapping[str, Any]) -> dict[str, Any]:
        """Return {reason} for an incomplete Ray, which its role waits for."""
        try:
            return io_ray_members.read(params)
        except io_ray.RayError as error:
            return {"reason": str(error)}

    return io_ray_members.ARGUMENTS, read


def _server(run: Run, _nft: str) -> tuple[Mapping[str, Any], Compare]:
    from ansible_collections.gb10.cluster.plugins.module_utils.health import io_server

    def read(params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the smoke test's result as `smoke`, {} without an answer before, and why the server fails as `msg`."""
        found, _log = io_server.read(run, params)
        if not found["answers"]:
            reason = f"is healthy, but does not answer: {found['reason']}" if found["healthy"] else "is not healthy"
            return {**found, "smoke": {}, "msg": f"The API {reason}"}
        smoke = io_server.smoke(params, params["smoke"]) if params["smoke"] else {}
        return {**found, "smoke": smoke, "msg": smoke.get("msg", "")}

    return {**io_server.ARGUMENTS, "smoke": {"type": "dict", "default": {}}}, read


#: By the names of of_plan.PARTS.
PARTS: Mapping[str, Part] = {
    "peer_firewall": _firewall,
    "qsfp_netplan": _network,
    "vllm_patch": _patches,
    "ray_cluster": _ray,
    "vllm_serve": _server,
}
