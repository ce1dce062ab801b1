# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The login settings of machines that a user names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The login settings of discovery, each with the option of the connection plugin ssh.
_LOGIN: Mapping[str, str] = {
    "user": "remote_user",
    "key": "private_key_file",
    "port": "port",
    "arguments": "ssh_common_args",
}
#: The variables of these options.
_VARIABLES = (
    "ansible_user",
    "ansible_ssh_user",
    "ansible_private_key_file",
    "ansible_ssh_private_key_file",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_ssh_common_args",
)


def login(decision: Decision, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return {user, key, port, arguments} of ssh for the task's host; "" and None where ssh chooses them."""
    of_ssh = {"plugin_type": "connection", "plugin_name": "ssh"}
    # The lookup returns templates as they are.
    values = {name: decision.variable(variables, name) for name in _VARIABLES if name in variables}
    found = {name: decision.lookup("config", [option], values, **of_ssh) for name, option in _LOGIN.items()}
    return {name: value if name == "port" else value or "" for name, value in found.items()}
