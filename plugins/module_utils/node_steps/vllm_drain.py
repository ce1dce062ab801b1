# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let a vLLM server refuse new requests, and wait for the open ones.

Closes the API for new requests, which get 503, as does its health check. So a gateway uses another server.
An API without a key has no guard, and stays open. After ``seconds`` and two minutes, an API opens again by itself.
Reads the server's metrics until no request is open. A server that does not answer has no open requests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_status

#: Seconds for the stop after the drain. The API stays closed meanwhile.
_STOP = 120


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``url``: The API's address, without path.
    ``seconds``: Maximum seconds. Open requests after them are not a failure.
    ``folder``: The folder of vLLM's settings, which the API's guard reads.
    ``server_name``: The name in the API's certificate, for an https address.
    ``ca_file``: The certificates that it is verified with.
    """

    url: str
    seconds: int = 60
    folder: str = field(default=access.CONFIG_FOLDER, metadata={"type": "path"})
    server_name: str = ""
    ca_file: str = field(default=argument_spec.API["ca_file"]["default"], metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {open, waited}: the open requests at the end, and the seconds of the wait."""
    server = io_client.Server(given.url, given.ca_file, given.server_name)
    closed = os.path.isdir(given.folder)
    if closed and not module.check_mode:
        io_status.refuse_new(given.folder, given.seconds + _STOP)
    left, waited = io_status.drained(server, 0 if module.check_mode else given.seconds)
    diff = {"before": "", "after": "new requests are refused\n" if closed else ""}
    return {"changed": closed, "open": left, "waited": round(waited, 1), "diff": diff}
