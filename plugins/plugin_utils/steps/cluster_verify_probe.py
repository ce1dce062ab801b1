# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the slow checks of a node that need the facts of all nodes.

Runs ``vllm_gpu_probe`` with the node's runtime, and ``fabric_probe`` on its rails to the other nodes.
Both depend on the results of ``cluster_verify_info``, which each node has registered as ``verify_node``.
Leaves out a check whose group is not selected by the tags of the run, and a node that was not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gb10.cluster.plugins.module_utils.verify import kernels, report, schema
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``nodes``: The nodes of the cluster.
    ``gpu``: Whether to run small kernels on the GPU.
    ``timeout``: Seconds for retries on a rail without reply.
    """

    nodes: Sequence[str]
    gpu: bool = True
    timeout: int


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> Values:
    """Return {paths, probe}. A node whose connection broke since it was read has neither."""
    known = report.cluster(step.of_nodes(variables, given.nodes, "verify_node", {}), {}, 0.0)
    name = variables["inventory_hostname"]
    facts = next((node.facts for node in known.read if node.name == name), None)
    if facts is None:
        return {"changed": False, "paths": [], "probe": []}
    groups = schema.groups(variables["ansible_run_tags"], variables["ansible_skip_tags"])
    runtime = kernels.probe(facts) if given.gpu and "runtime" in groups else {}
    rails = report.rails(known, name) if "fabric" in groups else {"rails": []}
    checked = _called(step, "vllm_gpu_probe", {**runtime, "required": []}, variables) if runtime else {}
    options = {**rails, "timeout": given.timeout, "required": False}
    sent = _called(step, "fabric_probe", options, variables) if rails["rails"] else {}
    failure: Values = next((each for each in (checked, sent) if each.get("failed")), {"changed": False})
    return {**failure, "paths": sent.get("unverified", []), "probe": checked.get("checks", [])}


def _called(step: Decision, name: str, inputs: Values, variables: Mapping[str, Any]) -> Values:
    """Return the result of a step on the node, {} if it cannot be reached any more."""
    try:
        return step.node(name, inputs, variables)
    except AnsibleConnectionFailure:
        return {}
