# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: access to the API: key, address and certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def api_key_error(key: str) -> str:
    """Return the error in a key for the API, without the key; "" for a valid key."""
    from ansible_collections.gb10.cluster.plugins.module_utils.api import access

    return access.key_problem(str(key))


def api_place(host: str, port: int, name: str, address: str, tls: bool) -> dict[str, str]:
    """Return {url, server_name, endpoint, client} of the API; see module_utils/api/access.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.api import access

    return access.place(str(host), int(port), str(name), str(address), bool(tls))


def api_tls(texts: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the facts and problems of the API's certificate, without its key; see module_utils/api/tls.py."""
    from ansible_collections.gb10.cluster.plugins.plugin_utils import certificate

    return certificate.verdict(plain_data(texts), str(name))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "api_key_error": api_key_error,
            "api_place": api_place,
            "api_tls": api_tls,
        }
