# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of cluster_verify_probe, which documents it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gb10.cluster.plugins.module_utils.verify import kernels, report, schema
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

Values = dict[str, Any]


class ActionModule(Decision):
    """Derives the arguments of the slow modules from the facts of all nodes."""

    def decide(self, variables: dict[str, Any]) -> Values:
        """Return {paths, probe}. A node whose connection broke since it was read has neither."""
        arguments = self.arguments(
            nodes={"type": "list", "elements": "str", "required": True},
            gpu={"type": "bool", "default": True},
            timeout={"type": "int", "required": True},
        )
        nodes = self.of_nodes(variables, arguments["nodes"], "verify_node", {})
        found = {name: result["node"] for name, result in nodes.items() if result.get("node")}
        name = variables["inventory_hostname"]
        facts = found[name]["facts"] if name in found else {}
        if not facts:
            return {"changed": False, "paths": [], "probe": []}
        groups = schema.groups(variables["ansible_run_tags"], variables["ansible_skip_tags"])
        runtime = kernels.probe(facts) if arguments["gpu"] and "runtime" in groups else {}
        rails = report.rails(list(found.values()), name) if "fabric" in groups else {"rails": []}
        checked = self._called("vllm_gpu_probe", {**runtime, "required": []}, variables) if runtime else {}
        options = {**rails, "timeout": arguments["timeout"], "required": False}
        sent = self._called("fabric_probe", options, variables) if rails["rails"] else {}
        failure: Values = next((each for each in (checked, sent) if each.get("failed")), {"changed": False})
        return {**failure, "paths": sent.get("unverified", []), "probe": checked.get("checks", [])}

    def _called(self, module: str, arguments: Values, variables: Mapping[str, Any]) -> Values:
        """Return the result of a module, {} for a node that cannot be reached any more."""
        try:
            return self.module(arguments, variables, f"gb10.cluster.{module}")
        except AnsibleConnectionFailure:
            return {}
