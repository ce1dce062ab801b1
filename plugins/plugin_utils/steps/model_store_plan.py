# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which nodes lack a model, and how they get it.

Compares the stored files of all nodes of the fact ``gb10_plan``. The head downloads its missing files, and the model
goes from node to node.
Returns the commands of the temporary units for this node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import units
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, Store
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs(units.CopySettings):
    """The inputs.

    ``model``: A model of the fact, ``store`` or one of ``drafts``.
    ``stored``: The variable of each node with the registered result of ``model_store_info``.
    ``listed``: The head's variable with the registered output of the command in ``argv``, ``list``. Empty if the
    head has the model, or before the command.
    ``fetched``: The head's variable with the registered result of ``model_store_info`` after its download; empty
    before.
    ``verify``: Whether nodes that have the model read all of it again.
    ``min_free_bytes``: Bytes that must stay free on each node.
    ``max_connections``: The number of files to transfer at once.
    ``port``: The port for sending the model to the next node.
    ``timeout``: Maximum seconds of a unit.
    ``exclude``: Patterns of files to skip.
    ``env``: Environment variables of the download.
    ``token``: Whether the file of ``files`` has a token of Hugging Face Hub.
    """

    model: Mapping[str, Any]
    stored: str
    listed: str = ""
    fetched: str = ""


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {fetches, receivers, link, report, argv, units, files, program, library}."""
    plan = step.plan(variables)
    store = load.load(Store, given.model, "model")
    unread, listing = "", None
    try:
        listing = _listing(step, plan, variables, given.listed)
    except ValueError as error:
        unread = f"{plan.head.name}: the list of the model's files is not readable: {error}"
    names = [node.name for node in plan.nodes]
    stored = step.of_nodes(variables, names, given.stored, {})
    fetches = not stored[names[0]]["complete"] or given.verify
    if given.fetched:
        stored |= step.of_nodes(variables, names[:1], given.fetched, {})
    decided = _decided(plan, store, given, stored, listing)
    decided["report"] = unread or decided["report"]
    return {"changed": False, "fetches": fetches, **decided, "_ansible_verbose_override": True}


def _listing(step: Decision, plan: Plan, variables: Mapping[str, Any], listed: str) -> Any:
    """Return the head's list of files, None if it was not read. Raises ValueError."""
    if not listed:
        return None
    printed = step.of_nodes(variables, [plan.head.name], listed, {})[plan.head.name]["stdout"]
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
    argv = {"list": units.list_argv(store, settings), "fetch": units.fetch_argv(plan, store, settings)}
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
