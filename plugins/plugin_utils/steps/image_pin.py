# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which image the tag of the plan means.

A tag can be moved to another image, so it stays pinned to the image of its first pull.
Fails if this node has recorded another image of the tag in the fact ``gb10_plan``.
With ``fetched``, returns the pins with the image that the head fetched.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch.overrides import IMAGE_ROLE
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import pins
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``fetched``: The variable of the head with the registered result of ``container_image`` for the tag.
    ``update``: Whether another image of the tag is accepted.
    """

    fetched: str = ""
    update: bool = False


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {} or a failure for another image of the tag; with ``fetched`` {pins, news}."""
    plan, fetched = step.plan(variables), given.fetched
    head, runtime = plan.head.name, plan.runtime
    if fetched:
        result = step.of_nodes(variables, [head], fetched, {})[head]
        found = pins.with_image(runtime.pins, runtime.tag, result)
        known = {name: asdict(pin) for name, pin in found.items()}
        return {"changed": False, "pins": known, "news": found != runtime.pins}
    recorded = plan.node.additions.get(IMAGE_ROLE, {}).get("files", {})
    refused = pins.refusal(runtime.tag, runtime.base, recorded, head, plan.node.name)
    return {"failed": True, "msg": refused} if refused and not given.update else {"changed": False}
