# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action of the module systemd_unit: it plans a service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.service import plan as service_plan
from ansible_collections.gb10.cluster.plugins.module_utils.service import tokens
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, ServiceSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils import program
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data

#: Service -> the registered version of its key, if it is not the API's.
_KEYS = {"fallback": "__vllm_fallback_key"}


class ActionModule(Decision):
    """Plans the service, and replaces each entry's program by its content."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result, and the planned service as `planned`."""
        arguments = plain_data(dict(self._task.args))
        planned = {}
        if chosen := arguments.pop("service", ""):
            planned = self._planned(str(chosen), variables)
            arguments |= {name: planned[name] for name in ("name", "unit", "files", "directories")}
            # Serving does not depend on the other services.
            arguments["allowed"] = chosen not in ("ray", "vllm") or self.plan(variables).allow_restart
        files = program.with_contents(arguments.get("files", []))
        found = self.module({**arguments, "files": files}, variables)
        return {**found, **({"planned": planned} if planned else {})}

    def _planned(self, name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return {name, unit, files, directories} of a service of the plan's node, and the launch of vLLM."""
        plan, settings = self.plan(variables), self.role_settings(variables, ServiceSettings)
        found = program.service(service_plan.of_node(plan, name, settings, self._learned(name, plan, variables)))
        return {**found, "launch": argv.start_digest(plan)} if name == "vllm" else found

    def _learned(self, name: str, plan: Plan, variables: Mapping[str, Any]) -> Learned:
        """Return the versions of secrets that tasks of this run have registered. No secret is a result."""
        nodes = [node.name for node in plan.nodes] if name == "vllm" else [plan.node.name]
        secrets = self.of_nodes(variables, nodes, "gb10_secrets_state", {})
        # The head's token, if a node lacked it.
        read = self.variable(variables, "__common_token", {})
        renewed = bool(self.variable(variables, "ray_cluster_new_token", False))
        content = "" if renewed and self.check_mode else read.get("content", "")
        return Learned(
            token=tokens.digest(plan, name, content, renewed),
            api_key=self.variable(variables, _KEYS.get(name, "gb10_api_key_state"), {}).get("version", ""),
            secrets=[state.get("version", "") for state in secrets.values()],
        )
