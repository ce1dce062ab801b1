# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of image_pin, which documents it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch.overrides import IMAGE_ROLE
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import pins
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Decides on the controller which image a tag means."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {} or a failure for another image of the tag; with O(fetched) {pins, news}."""
        arguments = self.arguments(fetched={"type": "str"}, update={"type": "bool"})
        plan, fetched = self.plan(variables), arguments["fetched"]
        head, runtime = plan.head.name, plan.runtime
        if fetched:
            result = self.of_nodes(variables, [head], fetched, {})[head]
            found = pins.with_image(runtime.pins, runtime.tag, result)
            known = {name: asdict(pin) for name, pin in found.items()}
            return {"changed": False, "pins": known, "news": found != runtime.pins}
        recorded = plan.node.additions.get(IMAGE_ROLE, {}).get("files", {})
        refused = pins.refusal(runtime.tag, runtime.base, recorded, head, plan.node.name)
        return {"failed": True, "msg": refused} if refused and not arguments["update"] else {"changed": False}
