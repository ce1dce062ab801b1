# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the state of the gateway that the role's variables describe, and what people read about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import report
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import State
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``read``: Further inputs of the node's step of this name.
    ``new_client``: A client that a later task creates, for ``refusal``. Empty for none.
    ``new_client_models``: The models that it may use; empty for all.
    """

    read: Mapping[str, Any] = field(default_factory=dict)
    new_client: str = ""
    new_client_models: Sequence[str] = ()


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the node's step and {lines, example, client_settings, place, refusal}.

    ``lines``: The models and the clients, for people.
    ``example``: How clients reach the gateway, with a request, and the models without an answer.
    ``client_settings``: The settings of common clients, with a placeholder for the key.
    ``place``: How another task reaches the gateway from its host, {url, server_name}, and the seconds ``interval``
    between two checks.
    ``refusal``: Why ``new_client`` cannot be created, "" if it can.
    """
    place = gateway.place(step, variables)
    reached = {name: place[name] for name in ("url", "server_name")}
    read = step.node("gateway_info", {**reached, **given.read}, variables)
    if read.get("failed"):
        return read
    state = load.chosen(State, read, "gateway_info")
    # The files and folders of this run's inventory.
    inventories = [os.path.relpath(str(each)) for each in variables.get("ansible_inventory_sources") or ()]
    refusal = report.refusal(state, given.new_client, given.new_client_models) if given.new_client else ""
    return {
        **read,
        "lines": report.lines(state, place["endpoint"]),
        "example": report.example(state, place, str(variables["inventory_hostname"]), inventories),
        "client_settings": report.client_settings(place["endpoint"], state.models),
        "place": {**reached, "interval": gateway.number(step, variables, "health_interval")},
        "refusal": refusal,
    }
