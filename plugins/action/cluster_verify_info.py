# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module cluster_verify_info: a node that cannot be read is a result, not a failure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Adds the controller's values for the checks to the facts: the node's name, its part and the time."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {node}, as VerifiedNode has it. Ansible gives its key ``unreachable`` another meaning."""
        arguments, started = dict(self._task.args), time.time()
        head, api = boolean(arguments.pop("head", False), strict=False), arguments.pop("api", {})
        arguments |= of_api(api, head, self.address(variables)) if api else {}
        facts, reason = self.read("gb10.cluster.cluster_verify_info", arguments, variables)
        node = {
            "name": variables["inventory_hostname"],
            "head": head,
            "unreachable": reason,
            # The arguments have the key of the digests.
            "facts": {key: value for key, value in facts.items() if key != "invocation"},
            "started": started,
            "finished": time.time(),
            "endpoint": arguments.get("endpoint", ""),
        }
        return {"changed": False, "node": node, "_ansible_verbose_override": True}


def of_api(api: Mapping[str, Any], head: bool, address: str) -> dict[str, str]:
    """Return the arguments {url, server_name, endpoint} of the module for the option ``api``.

    ``address``: the node's in the inventory. Only the head has an API.
    """
    secured = boolean(api["tls"], strict=False)
    place = access.place(str(api["host"]), int(api["port"]), str(api["name"]), address, secured)
    found = {name: place[name] for name in ("server_name", "endpoint")}
    return {**found, "url": place["url"] if head else ""}
