# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a machine's host key over the network, and the keys in known_hosts."""

from __future__ import annotations

import os
import socket
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import host_key
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run


def read(run: Run, address: str, port: int, known_hosts: str, timeout: int) -> dict[str, Any]:
    """Return {key, fingerprint, state, reason}. ``reason``: why the key is missing, "" if there is one."""
    result = {"key": "", "fingerprint": "", "state": "", "reason": ""}
    try:
        # ssh-keyscan reports no reason.
        socket.create_connection((address, port), timeout).close()
    except TimeoutError:
        return result | {"reason": f"connect to {address} port {port}: Connection timed out"}
    except OSError as error:
        return result | {"reason": f"connect to {address} port {port}: {error.strerror or error}"}
    status, said, complaint = run(["ssh-keyscan", "-T", str(timeout), "-p", str(port), "-t", "ed25519", address])
    offer = host_key.offered(said)
    if not offer:
        lines = complaint.strip().splitlines()[-1:] if status else []
        return result | {"reason": f"{address} port {port} offers no ed25519 host key {' '.join(lines)[:200]}".rstrip()}
    known: list[str] = []
    if os.path.exists(known_hosts):
        _status, said, _complaint = run(["ssh-keygen", "-F", host_key.name(address, port), "-f", known_hosts])
        known = host_key.stored(said)
    return result | {"key": offer, "fingerprint": host_key.fingerprint(offer), "state": host_key.judge(offer, known)}
