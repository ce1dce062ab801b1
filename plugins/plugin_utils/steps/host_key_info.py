# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the SSH host key of a machine, and compare it with known_hosts.

Reads the ed25519 key of the host with ssh-keyscan, at the address and port of its variables for ssh. Logs in nowhere.
Does not fail if the machine gives no key; its ``reason`` in ``node`` tells why.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import io_host_key
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED
from ansible_collections.gb10.cluster.plugins.plugin_utils import machines
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``known_hosts``: The file to compare with.
    ``timeout``: Seconds to wait for the machine.
    """

    known_hosts: str = field(default="~/.ssh/known_hosts", metadata={"type": "path"})
    timeout: int = 10


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {node}, also if the machine gives no key."""
    login = machines.login(step, variables)
    address, port = step.address(variables), int(login["port"] or 22)
    key: dict[str, Any] = {}
    if step._connection.transport != "local":
        key = io_host_key.read(_run, address, port, given.known_hosts, given.timeout)
    node = {"name": variables["inventory_hostname"], "address": address, "port": port, "user": login["user"]}
    return {"changed": False, "node": {**node, "host_key": key}}


def _run(argv: list[str]) -> tuple[int, str, str]:
    """Run a command of the controller, as common.io_command.Run."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "env": os.environ | {"LC_ALL": "C.UTF-8"}}
    try:
        done = subprocess.run(argv, **options, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        return NOT_INSTALLED, "", f"{argv[0]} is not installed"
    return done.returncode, done.stdout, done.stderr
