# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: command lines, environment and overrides of Ray and vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def merge_overrides(plan: Mapping[str, Any], role: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan with a role's overrides, by the node's name; see module_utils/launch/overrides.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import additions
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides

    given, found = plain_data(plan), plain_data(results)
    # Parts of them are results of the nodes' modules.
    if problems := [
        problem
        for node, one in found.items()
        if one
        for problem in additions.check(node, str(role), one, given["root"])
    ]:
        raise AnsibleFilterError(report(problems))
    return overrides.merge(given, str(role), found)


def rank_env(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of every process of a planned node."""
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides

    return overrides.rank_environment(plain_data(node))


def ray_exec_start(plan: Mapping[str, Any], object_store_memory: int, args: Sequence[str] = ()) -> str:
    """Return the ExecStart= of Ray on the plan's node."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import gates

    given = plain_data(plan)
    argv = launch.contained(
        given, launch.RAY, launch.ray_argv(given, object_store_memory, plain_data(args)), _owner(given)
    )
    return systemd.exec_line([*gates.argv(launch.RAY, launch.engine_file(given, launch.RAY)), *argv])


def vllm_exec_start(plan: Mapping[str, Any]) -> str:
    """Return the ExecStart= of vLLM on the plan's node."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import gates

    given = plain_data(plan)
    return systemd.exec_line(
        [*gates.argv(launch.VLLM, launch.engine_file(given, launch.VLLM)), *launch.start_argv(given, _owner(given))]
    )


def gate_settings(plan: Mapping[str, Any], drop_caches: bool) -> dict[str, Any]:
    """Return the settings of the gates before each start on the plan's node; see module_utils/launch/gates.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import gates

    return gates.settings(plain_data(plan), bool(drop_caches))


def _owner(plan: Mapping[str, Any]) -> str:
    """Return the UID:GID that a container runs as, because an image does not have the user's name; "" if it is
    unknown."""
    return str(plan["node"].get("state", {}).get("service_user", ""))


def confinement(user: str, writable: Sequence[str]) -> list[str]:
    """Return the properties that confine a unit of the service user; see module_utils/launch/confinement.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.launch.confinement import properties

    return properties(str(user), plain_data(writable))


def confined_query(user: str, writable: Sequence[str]) -> list[str]:
    """Return the command prefix of a confined query without network; see module_utils/launch/confinement.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.launch.confinement import query

    return query(str(user), plain_data(writable))


def image_probe_argv(plan: Mapping[str, Any], argv: Sequence[str], gpu: bool = False) -> list[str]:
    """Return the argv that runs another argv in a bare container of the image of the plan's node."""
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch

    return launch.look_argv(plain_data(plan), plain_data(argv), bool(gpu))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "confined_query": confined_query,
            "confinement": confinement,
            "gate_settings": gate_settings,
            "merge_overrides": merge_overrides,
            "rank_env": rank_env,
            "ray_exec_start": ray_exec_start,
            "vllm_exec_start": vllm_exec_start,
            "image_probe_argv": image_probe_argv,
        }
