# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: look up models in the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def model_entry(name: str, user_models: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return a model's catalog entry; see module_utils/model/catalog.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
    from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog

    try:
        return catalog.find(str(name), plain_data(user_models)).facts()
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error


def model_path(name: str, user_models: Mapping[str, Any], root: str = "") -> str:
    """Return a model's folder on the nodes; for a Hugging Face Hub model the store's folder with ``root``, else "".

    cluster_plan reports errors in the name and in ``user_models``.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
    from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
    from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan

    try:
        model = catalog.find(str(name), plain_data(user_models))
    except ProblemsError:
        return str(name) if str(name).startswith("/") else ""
    return model.path or (plan.folder(str(root), model.hub, model.revision) if root and model.hub else "")


def hub_model(name: str, user_models: Mapping[str, Any]) -> dict[str, str]:
    """Return {name, revision} of a model on Hugging Face Hub, {} for one with a folder. cluster_plan reports errors."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
    from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog

    try:
        model = catalog.find(str(name), plain_data(user_models))
    except ProblemsError:
        return {}
    return {"name": model.hub, "revision": model.revision or "main"} if model.hub and not model.path else {}


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "model_entry": model_entry,
            "model_path": model_path,
            "hub_model": hub_model,
        }
