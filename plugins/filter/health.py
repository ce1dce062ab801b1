# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: a request to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def client_example(api: Mapping[str, Any], model: str, kind: str) -> list[str]:
    """Return the command that shows the key, and a request, as text lines; see module_utils/health/example.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.health import example, schema
    from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

    return example.client(load.load(schema.Client, plain_data(api), "api"), str(model), str(kind))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"client_example": client_example}
