#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_drain
short_description: Let a vLLM server refuse new requests, and wait for the open ones
version_added: 0.1.0
description:
  - Closes the API for new requests, which get 503, as does its health check. So a gateway uses another server.
  - An API without a key has no guard, and stays open. After O(seconds) and two minutes, an API opens again by itself.
  - Reads the server's metrics until no request is open.
  - A server that does not answer has no open requests.
options:
  url:
    description: The API's address, without path.
    type: str
    required: true
  seconds:
    description: Maximum seconds. Open requests after them are not a failure.
    type: int
    default: 60
  folder:
    description: The folder of vLLM's settings, which the API's guard reads.
    type: path
    default: /etc/gb10/vllm
seealso:
  - module: gb10.cluster.vllm_wait
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
  - gb10.cluster.api
"""

EXAMPLES = r"""
- name: Wait for the open requests
  gb10.cluster.vllm_drain:
    url: http://127.0.0.1:8000
  become: true
"""

RETURN = r"""
open:
  description: The open requests at the end.
  returned: success
  type: int
waited:
  description: The seconds of the wait.
  returned: success
  type: float
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_status

#: Seconds for the stop after the drain. The API stays closed meanwhile.
_STOP = 120


def main() -> None:
    """Wait, unless in check mode."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 60},
            "folder": {"type": "path", "default": access.CONFIG_FOLDER},
            **argument_spec.API,
        },
        supports_check_mode=True,
    )
    given = module.params
    server = io_client.Server(given["url"], given["ca_file"], given["server_name"])
    closed = os.path.isdir(given["folder"])
    try:
        if closed and not module.check_mode:
            io_status.refuse_new(given["folder"], given["seconds"] + _STOP)
        left, waited = io_status.drained(server, 0 if module.check_mode else given["seconds"])
    except OSError as error:
        module.fail_json(msg=str(error))
    diff = {"before": "", "after": "new requests are refused\n" if closed else ""}
    module.exit_json(changed=closed, open=left, waited=round(waited, 1), diff=diff)


if __name__ == "__main__":
    main()
