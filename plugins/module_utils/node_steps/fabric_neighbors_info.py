# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the neighbors on a node's QSFP cables.

Pings all nodes (ff02::1) on every QSFP interface with carrier and reads the neighbor table. On interfaces with IPv4
addresses, it also queries the known IPv4 neighbors. Only neighbors that reply now count.
Adds facts from lldpctl and avahi-browse where they are installed; lldpctl needs root. Queries all interfaces at once.
Reads each neighbor's SSH host key over the cable. The key also shows whether two PCIe functions belong to one machine.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner, runner
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import io_neighbors
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

#: Seconds that one command may take.
_TIMEOUT = 10


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """No inputs."""


def run(module: AnsibleModule, _given: Inputs) -> dict[str, Any]:
    """Return {hostname, interfaces, management, neighbors, notes, unheard}.

    ``interfaces``: For each network interface its ``mac``, ``up`` and ``carrier``.
    ``management``: The IPv4 address of the default route's interface, else of the SSH connection, else of RJ45 or
    Wi-Fi; "" if none.
    ``neighbors``: For each QSFP interface with carrier, its neighbors as {mac, address, name, host_key}. ``address``
    reaches the neighbor from this machine, with zone; it is "" if only LLDP reports the neighbor. ``name`` is an
    announced value, ``host_key`` the ed25519 key; each is "" if unknown.
    ``notes``: Installed programs whose data could not be read, and the reason.
    ``unheard``: The interfaces with carrier and without results, and the reason.
    """
    interfaces = node_io_facts.interfaces(runner(module))
    found = io_neighbors.read(parallel_runner(module, _TIMEOUT), interfaces)
    hostname = socket.gethostname().partition(".")[0]
    return {"changed": False, "hostname": hostname, "interfaces": interfaces, **found}
