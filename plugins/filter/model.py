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


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "model_entry": model_entry,
        }
