# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: access to the API: key, address and certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def api_place(host: str, port: int, name: str, address: str, tls: bool) -> dict[str, str]:
    """Return {url, server_name, endpoint, client} of the API; see module_utils/api/access.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.api import access

    return access.place(str(host), int(port), str(name), str(address), bool(tls))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "api_place": api_place,
        }
