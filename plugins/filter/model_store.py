# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: plan the copy of a model to every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, plain_data, typed_plan


def model_store_plan(
    plan: Fact,
    item: Mapping[str, Any],
    found: Mapping[str, Any],
    listing: Mapping[str, Any],
    reserve: int,
    verify: bool,
) -> dict[str, Any]:
    """Return {receivers, chain, problems, report} for the plan's model or draft ``item``; see
    module_utils/model_store/plan.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
    from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store

    given, nodes = plain_data(found), typed_plan(plan).nodes
    names = [node.name for node in nodes]
    # Before the head's download its digest is unknown. Then every node that differs from the listing receives.
    wanted = "" if listing else given[names[0]]["digest"]
    receivers = model_store.receivers(names, given, wanted, bool(verify))
    problems = model_store.problems(plain_data(item), names, given, plain_data(listing) or None, int(reserve))
    return {
        "receivers": receivers,
        "chain": model_store.chain(nodes, receivers),
        "problems": [str(problem) for problem in problems],
        "report": report(problems),
    }


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"model_store_plan": model_store_plan}
