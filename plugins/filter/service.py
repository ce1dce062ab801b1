# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the services of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils import program
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, typed_plan


def service(
    plan: Fact, name: str, settings: Mapping[str, Any], learned: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return {unit: {text, inputs}, files, directories, written} of a service of the plan's node.

    ``settings``: of all roles, from the module cluster_inputs. ``learned``: see module_utils/service/schema.py.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
    from ansible_collections.gb10.cluster.plugins.module_utils.service import plan as services
    from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, Settings

    found = services.of_node(
        typed_plan(plan),
        str(name),
        load.chosen(Settings, settings, "gb10_inputs.settings"),
        load.load(Learned, learned or {}, "learned"),
    )
    return program.service(found)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"service": service}
