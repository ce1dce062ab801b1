# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: access of the controller to the nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible import context
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data
from ansible_collections.gb10.cluster.plugins.plugin_utils.supported import require_run


def access_hosts(groups: Mapping[str, Any]) -> list[str]:
    """Return the hosts of the groups gb10_cluster and gateway; without them all hosts of the inventory.

    None is an error.
    """
    require_run()
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import select
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, report

    plain = plain_data(groups)
    found = list(dict.fromkeys([*plain.get(select.ALL, []), *plain.get("gateway", [])])) or plain.get("all", [])
    if not found and not context.CLIARGS.get("syntax"):
        problem = Problem(
            "inventory", "no host", "the addresses of the machines", "pass -i 192.168.1.11,192.168.1.12, -u nvidia"
        )
        raise AnsibleFilterError(report([problem]))
    return found


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "access_hosts": access_hosts,
        }
