# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of cluster_facts, which documents it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import collect
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Reads the node once for the plan, or its saved facts, and keeps an unreachable node in the play."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {node}: the planner's input about the node without its settings."""
        self.arguments()
        host, nodes = variables["inventory_hostname"], self.variable(variables, "gb10_nodes")
        if missing := [node for node in nodes if node not in variables["ansible_play_hosts_all"]]:
            message = (
                f"This run leaves out {', '.join(missing)}. Expected: every node of the cluster. "
                "Fix: run without --limit. To run one role alone, use --tags."
            )
            return {"failed": True, "msg": message}
        if failed := [node for node in nodes if node not in variables["ansible_play_hosts"]]:
            return {"failed": True, "msg": f"The plan needs {', '.join(failed)}, which failed before: see above."}
        own = self.variable(variables, "gb10_inputs")
        heads, workers = (self.variable(variables, f"gb10_{group}") for group in ("heads", "workers"))
        node = {
            "name": host,
            "address": own["client"]["address"],
            "user": own["client"]["user"],
            "group": "head" if host in heads else "worker" if host in workers else "",
            "unreachable": "",
            "unrecorded": "",
            "typical": False,
            "read": 0,
            "observed": {},
            "queried": {},
        }
        found = {**node, **self._found(node, own, variables)}
        return {"changed": False, "node": found, "_ansible_verbose_override": True}

    def _found(self, node: Mapping[str, Any], own: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the facts that the plan's mode selects: the node's, the saved ones, or none."""
        # Boolean values are accepted for false and true.
        offline = str(own["settings"]["gb10_plan_offline"]).lower()
        if any(each["name"] == "gb10_plan_offline" for each in own["refused"]):
            # Its default would connect to the node.
            return {"typical": True}
        if offline == "false":
            return self._read(node, own, variables)
        if offline != "true":
            return {"typical": offline == "typical"}
        # Its default refers to the inventory.
        folder = Path(str(self.variable(variables, "gb10_facts_dir"))).expanduser().resolve()
        path = f"{folder}/{node['name']}.json"
        text = self.file(path, variables)
        return {"observed": json.loads(text or "{}"), "unrecorded": "" if text else path}

    def _read(self, node: Mapping[str, Any], own: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        head = node["group"] == "head"
        runtime = collect.runtime(own, self.file(own["settings"]["gb10_runtime_lock"], variables))
        observed, reason = self.read("gb10.cluster.node_info", collect.options(own, runtime, head), variables)
        found = {"read": time.time(), "unreachable": reason}
        if reason:
            return found
        observed = collect.facts(observed)
        queried = self._queried(own, runtime, variables) if head and not own["known_release"] else {}
        return {**found, "observed": observed, "queried": queried}

    def _queried(self, own: Mapping[str, Any], runtime: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {options, variables} of an installed vLLM that is newer than the table, {} without one."""
        mark, _reason = self.read("ansible.builtin.stat", {"path": f"{runtime}/.complete"}, variables)
        if not mark.get("stat", {}).get("exists"):
            return {}
        settings = own["settings"]
        prefix = confinement.query(str(settings["gb10_service_user"]), settings["gb10_service_read_write_paths"])
        python = [*prefix, f"{runtime}/bin/python"]
        answer, reason = self.read("gb10.cluster.vllm_arguments_info", {"python": python}, variables)
        if reason:
            raise AnsibleActionFail(reason)
        return {"options": answer["options"], "variables": answer["variables"]}
