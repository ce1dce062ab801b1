# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: command lines, environment and overrides of Ray and vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def merge_overrides(plan: Fact, role: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan with a role's overrides, by the node's name; see module_utils/launch/overrides.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.cluster import additions
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides

    given, found = typed_plan(plan), plain_data(results)
    # Parts of them are results of the nodes' modules.
    if problems := [
        problem for node, one in found.items() if one for problem in additions.check(node, str(role), one, given.root)
    ]:
        raise AnsibleFilterError(report(problems))
    return overrides.merge(given, str(role), found).facts()


def confined_query(user: str, writable: Sequence[str]) -> list[str]:
    """Return the command prefix of a confined query without network; see module_utils/launch/confinement.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.launch.confinement import query

    return query(str(user), plain_data(writable))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "confined_query": confined_query,
            "merge_overrides": merge_overrides,
        }
