# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments that several modules share. The documentation fragments of the same names document them."""

from __future__ import annotations

from typing import Any

#: How to verify the API's certificate at an https address. Paths are not secret.
API: dict[str, Any] = {
    "server_name": {"type": "str", "default": ""},
    "ca_file": {"type": "path", "default": "/etc/gb10/tls/ca.crt"},
}
#: The key file, and the unit that must own the API's port before the key is sent.
API_KEY: dict[str, Any] = {
    "key_file": {"type": "path", "default": "", "no_log": False},
    "unit": {"type": "str", "default": "gb10-vllm.service"},
}
#: A node's rails, as in the plan.
RAILS: dict[str, Any] = {
    "rails": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "interface": {"type": "str", "required": True},
            "hca": {"type": "str"},
            "address": {"type": "str", "required": True},
            "peers": {"type": "dict", "required": True},
            "macs": {"type": "dict", "default": {}},
        },
    },
    "mtu": {"type": "int", "required": True},
}
