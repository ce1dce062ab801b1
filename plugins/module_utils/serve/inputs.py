# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert the nodes that the role gb10 describes (cluster/plan.py) to the inputs of serve/plan.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog as catalogue
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import choice as nccl_choice
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve.plan import Inputs
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release


def inputs(
    model: catalogue.Model,
    nodes: Sequence[Mapping[str, Any]],
    known: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    stack: stacks.Stack,
    kind: str,
    carried: str,
) -> Inputs:
    """Return the inputs of plan.decide, which documents the form of ``known``; read() finds the model's facts."""
    head = nodes[0]
    found = read(model, nodes, settings["gb10_install_dir"])
    choice = nccl(nodes, known, stack, kind, carried)
    built = stack.nccl if head["nccl"] == "stack" else head["nccl"]
    library = head["observed"].get("nccl") or {}
    version = built if choice["build"] else library.get("version") or stack.bundled_nccl
    return Inputs(
        model=model,
        config=found["model"] if found.get("model") is not None else model.config or None,
        weights_bytes=found.get("model_bytes") or model.weights_bytes,
        stack=stack,
        settings=settings,
        nodes=known,
        topology=kind,
        transport=carried,
        nccl=version.removeprefix("v").partition("-")[0],
        nccl_gcc=() if choice["build"] else tuple(library.get("gcc", ())),
        smoke_tokens=int(head["smoke_tokens"]),
        asked=vllm_release.options_of(head["asked"]["options"]) if head["asked"] else None,
        variables=head["asked"].get("variables"),
    )


def read(model: catalogue.Model, nodes: Sequence[Mapping[str, Any]], root: str) -> Mapping[str, Any]:
    """Return the facts read from the model's files as {model, model_bytes}, {} if nothing was read.

    A node with the complete model comes first. Next is the source of the model, the folder or Hugging Face Hub as the
    head reported it. So the run that copies the model and the runs after it decide from the same facts. An incomplete
    copy on the head comes last. Facts about another model, which recorded facts may contain, are ignored.
    """
    head = nodes[0]["observed"]
    stored = model_store.folder(root, model.hub, model.revision) if model.hub else ""
    ours = [node["observed"] for node in nodes if node["observed"].get("model_at", model.path) in (model.path, stored, nodes[0]["store"]["source"])]
    said = head.get("hub_model") or {}
    told = [said] if (said.get("name"), said.get("revision")) == (model.hub, model.revision or "main") else []
    candidates = [*(each for each in ours if each.get("model_complete")), *told, *(each for each in ours if each is head)]
    return next((each for each in candidates if each.get("model") is not None), {})


def unread(model: catalogue.Model, nodes: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> list[str]:
    """Return a warning if the model's source was not read although it is needed; ``found`` is read()'s result."""
    said, store = nodes[0]["observed"].get("hub_model") or {}, nodes[0]["store"]
    if said.get("trouble"):
        why = f"Hugging Face Hub could not be queried for {said['name']} at {said['revision']}: {said['trouble']}"
    elif store["enabled"] and store["source"] and nodes[0]["observed"] and not found:
        why = f"{nodes[0]['name']} has no {store['source']}/config.json (model_store_source)"
    else:
        return []
    if found:
        known = "the plan uses facts from an earlier read"
    else:
        known = "the plan uses the catalog entry" if model.config else "the plan uses cautious defaults"
    return [f"{why}; {known}, and a later run may plan differently"]


def nccl(nodes: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]], stack: stacks.Stack, kind: str, carried: str) -> dict[str, Any]:
    """Return whether to build NCCL, as far as the nodes' facts decide it: {build, final, why, wanted, cluster}.

    ``known`` are the nodes in the form that plan.py documents, ``kind`` the topology, ``carried`` the transport.
    """
    wanted = nodes[0]["nccl_wanted"]
    cluster = nccl_choice.Cluster(
        cuda=stack.device == stacks.CUDA,
        container=stack.runtime == stacks.CONTAINER,
        ring=(kind, carried) == ("ring", "roce"),
        release=stack.bundled_nccl,
    )
    found = [entry["observed"].get("nccl") for entry in nodes]
    members = [nccl_choice.Node(entry["name"], entry["capability"] or "", library) for entry, library in zip(known, found, strict=True)]
    return {**nccl_choice.choose(wanted, cluster, members).facts(), "wanted": wanted, "cluster": asdict(cluster)}


def of_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a node that the decision needs in addition to the plan; 0, "" and None if unknown."""
    observed = node["observed"]
    gpu = observed.get("gpu", {})
    return {
        "capability": next((entry["capability"] for entry in gpu.get("gpus", ()) if entry["capability"]), None),
        "driver": gpu.get("driver_version") or "",
        "memory_bytes": gpu.get("memory_bytes") or 0,
        "kernel": observed.get("kernel", ""),
        "cma_free_bytes": observed.get("cma_free_bytes") or 0,
        "cma_total_bytes": observed.get("cma_total_bytes") or 0,
    }


def transport(planned: Sequence[Mapping[str, Any]]) -> str:
    """Return the transport that the plan's environment selects for NCCL."""
    if len(planned) == 1:
        return "none"
    return "socket" if planned[0]["environment"].get("NCCL_IB_DISABLE") == "1" else "roce"
