# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of model_store_plan, which documents it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import units
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, Store
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Decides from the stored files of all nodes which ones lack a model, and how they get it."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {fetches, receivers, link, report, argv, ...} as the module documents it."""
        arguments = self.arguments(
            model={"type": "dict", "required": True},
            stored={"type": "str", "required": True},
            listed={"type": "str", "default": ""},
            fetched={"type": "str", "default": ""},
            verify={"type": "bool", "required": True},
            min_free_bytes={"type": "int", "required": True},
            max_connections={"type": "int", "required": True},
            port={"type": "int", "required": True},
            timeout={"type": "int", "required": True},
            exclude={"type": "list", "elements": "str", "required": True},
            env={"type": "dict", "required": True},
            token={"type": "bool", "required": True},
        )
        plan = self.plan(variables)
        store = load.load(Store, arguments["model"], "model")
        settings = load.chosen(units.CopySettings, arguments, "model_store")
        unread, listing = "", None
        try:
            listing = self._listing(plan, variables, arguments["listed"])
        except ValueError as error:
            unread = f"{plan.head.name}: the list of the model's files is not readable: {error}"
        names = [node.name for node in plan.nodes]
        stored = self.of_nodes(variables, names, arguments["stored"], {})
        fetches = not stored[names[0]]["complete"] or settings.verify
        if arguments["fetched"]:
            stored |= self.of_nodes(variables, names[:1], arguments["fetched"], {})
        decided = _decided(plan, store, settings, stored, listing)
        decided["report"] = unread or decided["report"]
        return {"changed": False, "fetches": fetches, **decided, "_ansible_verbose_override": True}

    def _listing(self, plan: Plan, variables: Mapping[str, Any], listed: str) -> Any:
        """Return the head's list of files, None if it was not read. Raises ValueError."""
        if not listed:
            return None
        printed = self.of_nodes(variables, [plan.head.name], listed, {})[plan.head.name]["stdout"]
        return bounded_json.load(printed, model_store_plan.MOST_TEXT)


def _decided(
    plan: Plan, store: Store, settings: units.CopySettings, stored: Mapping[str, Any], listing: Any
) -> dict[str, Any]:
    names = [node.name for node in plan.nodes]
    # Before the head's download its digest is unknown. Then every node that differs from the listing receives.
    wanted = "" if listing else stored[names[0]]["digest"]
    receivers = model_store_plan.receivers(names, stored, wanted, settings.verify)
    item = {"folder": store.folder, "source": store.source}
    problems = model_store_plan.problems(item, names, stored, listing, settings.min_free_bytes)
    link = model_store_plan.chain(plan.nodes, receivers).get(plan.node.name, {})
    argv = {"list": units.list_argv(plan, store, settings), "fetch": units.fetch_argv(plan, store, settings)}
    if link:
        argv["relay"] = units.relay_argv(store, settings, link, plan.node.head)
    return {
        "receivers": receivers,
        "link": link,
        "report": report(problems) if problems else "",
        "argv": argv,
        "units": {"fetch": units.FETCH, "relay": units.RELAY},
        "files": dict(units.FILES),
        "program": paths.program_file("model"),
        "library": units.library(plan),
    }
