# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What to read on the nodes and on Hugging Face Hub before the plan, from the results of cluster_inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.memory import adapters
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import choice

#: Keys of a module's result that are not facts of the node.
_NOT_FACTS = ("ansible_facts", "changed", "deprecations", "failed", "invocation", "warnings")


def runtime(inputs: Mapping[str, Any], lock: str) -> str:
    """Return the environment of the ranks."""
    digest = choice.digest_of_lock(lock, inputs["build"])
    return f"{inputs['settings']['gb10_install_dir']}/runtime/{digest[:12]}"


def options(inputs: Mapping[str, Any], runtime_folder: str, head: bool) -> dict[str, Any]:
    """Return the options of node_info on a node."""
    settings = inputs["settings"]
    found = {
        "exclude": settings["model_store_exclude"],
        "runtime": runtime_folder,
        "user": settings["gb10_service_user"],
        "keep_runtimes": settings["vllm_runtime_keep_releases"],
        "packages": inputs["packages"],
    }
    if folders := adapters.folders([str(word) for word in settings["gb10_vllm_extra_args"]]):
        found["folders"] = folders
    if inputs["model_path"]:
        found["model"] = inputs["model_path"]
    if inputs["build"]["enabled"]:
        found["builds"] = f"{settings['gb10_install_dir']}/build"
    if head and settings["model_store_enabled"] and settings["model_store_source"]:
        found["source"] = settings["model_store_source"]
    return found


def hub_options(
    inputs: Mapping[str, Any], head: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the inputs of the step hub_model_info on the head, {} when the Hub is not queried for the model.

    ``inputs``: of the head. ``head`` and ``nodes``: of cluster_facts. The token is not here.
    """
    settings, model = inputs["settings"], inputs["hub_model"]
    copied = settings["model_store_enabled"] and settings["model_store_source"]
    stored = any(node["observed"].get("model_complete") for node in nodes)
    if not model or copied or stored or not head["read"] or head["unreachable"]:
        return {}
    return {
        **model,
        "environment": settings["gb10_download_env"],
        "exclude": settings["model_store_exclude"],
        "record": paths.OF_ROLES["hub_model"],
    }


def facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a module's facts of a node, without the keys that Ansible adds."""
    return {name: value for name, value in result.items() if name not in _NOT_FACTS}
