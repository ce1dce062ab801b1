# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of cluster_plan, which documents it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import collect, models, parse, report, select
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster_plan
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Inputs
from ansible_collections.gb10.cluster.plugins.module_utils.common import problems
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs, recipe_yaml
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import typed_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.supported import require_run
from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import shown


class ActionModule(Decision):
    """Plans on the first node of a cluster from the results of all nodes."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the plan, a table of models, or a failure with the conflicts between clusters."""
        # For playbooks of others, with the role gb10.
        require_run()
        arguments = self.arguments(models={"type": "bool", "default": False}, clusters={"type": "dict", "default": {}})
        if arguments["clusters"]:
            return self._conflicts(arguments["clusters"], variables)
        host, names = variables["inventory_hostname"], self.variable(variables, "gb10_nodes")
        inputs = self.of_nodes(variables, names, "gb10_inputs", {})
        nodes = {name: read["node"] for name, read in self.of_nodes(variables, names, "__gb10_facts", {}).items()}
        hub = self._hub(inputs[host], nodes, variables)
        if hub.get("failed"):
            return hub
        nodes[host]["observed"] |= hub
        # A recipe serves one model.
        recipe = {"name": ""} if arguments["models"] else inputs[host]["recipe"]
        given = self._parsed(inputs[host], recipe, [{**inputs[name], **nodes[name]} for name in names], variables)
        access = _access([inputs[name]["settings"] for name in names])
        answer = _models(given) if arguments["models"] else _plan(given, inputs[host]["settings"], access)
        notices = [] if answer["problems"] else answer.get("notices", [])
        warned = [line if line.startswith("warning") else f"warning: {line}" for line in notices]
        msg = shown("\n".join(warned))
        return {"changed": False, **answer, "hub": hub, "msg": msg, "_ansible_verbose_override": True}

    def _hub(self, own: Mapping[str, Any], nodes: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return {hub_model} from Hugging Face Hub, {} if no question is needed, or the step's failure."""
        host = nodes[variables["inventory_hostname"]]
        options = collect.hub_options(own, host, list(nodes.values())) if host["group"] == "head" else {}
        if not options:
            return {}
        options["token"] = self.variable(variables, "model_store_hub_token", "")
        # Without become: the step reads no file of root. It uses the download's environment, so the same mirror.
        result = self.node("hub_model_info", options, variables)
        return result if result.get("failed") else {"hub_model": result["hub_model"]}

    def _parsed(
        self,
        own: Mapping[str, Any],
        recipe: Mapping[str, str],
        nodes: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
    ) -> Inputs:
        document = None
        if recipe["name"]:
            data, refused = recipe_yaml.document(recipe)
            document = refused or data
        lock = self.file(own["settings"]["gb10_runtime_lock"], variables)
        return parse.parse(nodes, lock, document, own["layers"])

    def _conflicts(self, clusters: Mapping[str, Sequence[str]], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return a failure with the clusters without a plan, and the conflicts between clusters."""
        if len(clusters) == 1:
            return {"changed": False}
        names = [node for nodes in clusters.values() for node in nodes]
        plans = self.of_nodes(variables, names, "gb10_plan", {})
        found = {
            name: next((typed_plan(plans[node]) for node in nodes if plans[node]), None)
            for name, nodes in clusters.items()
        }
        refused = select.conflicts(found)
        return {"failed": bool(refused), "changed": False, "msg": problems.report(refused) if refused else ""}


def _access(nodes: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Return the problems of the variables about access, from the settings of all nodes. Equal ones are one."""
    given = [
        firewall_plan.Access(
            (),
            0,
            (),
            settings["peer_firewall_open_ports"],
            settings["peer_firewall_trusted_interfaces"],
            monitoring_clients=settings["monitoring_clients"],
        )
        for settings in nodes
    ]
    return list(dict.fromkeys(problem for each in given for problem in firewall_plan.check(each)))


def _plan(given: Inputs, settings: Mapping[str, Any], access: Sequence[Problem]) -> dict[str, Any]:
    """Return {plan, problems, report, notices, lines}; Ansible keeps ``warnings`` for itself."""
    plan, refused = cluster_plan.plan(given, argument_specs.known())
    if access:
        plan, refused = None, [*refused, *access]
    memory = int(settings["ray_cluster_object_store_memory"])
    return {
        "plan": plan.facts() if plan else {},
        "problems": [str(problem) for problem in refused],
        "report": problems.report(refused),
        "notices": cluster_plan.warnings(given, plan),
        "lines": report.lines(plan, memory, report.guards(settings, plan.rest)) if plan else [],
    }


def _models(given: Inputs) -> dict[str, Any]:
    """Return {lines, problems, report}: the table of all models, or the problems of every plan."""
    rows, refused = models.survey(given, argument_specs.known())
    return {
        "lines": models.lines(rows, len(given.nodes), given.label) if rows else [],
        "problems": [str(problem) for problem in refused],
        "report": problems.report(refused),
    }
