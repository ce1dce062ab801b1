# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of host_key_info, which documents it."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import io_host_key
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED
from ansible_collections.gb10.cluster.plugins.plugin_utils import machines
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


class ActionModule(Decision):
    """Connects to the machine's sshd from the controller, and logs in nowhere."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {node}, also if the machine gives no key."""
        arguments = self.arguments(
            known_hosts={"type": "path", "default": "~/.ssh/known_hosts"}, timeout={"type": "int", "default": 10}
        )
        login = machines.login(self, variables)
        address, port = self.address(variables), int(login["port"] or 22)
        key: dict[str, Any] = {}
        if self._connection.transport != "local":
            key = io_host_key.read(_run, address, port, arguments["known_hosts"], arguments["timeout"])
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
