#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_drain
short_description: Wait for the open requests of a vLLM server
version_added: 0.1.0
description:
  - Reads the server's metrics until no request runs or waits. New requests are not refused meanwhile.
  - A server that does not answer has no open requests.
options:
  url:
    description: The API's address, without path.
    type: str
    required: true
  seconds:
    description: Maximum seconds. Open requests after them are no failure.
    type: int
    default: 60
seealso:
  - module: gb10.cluster.vllm_wait
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
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

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_status


def main() -> None:
    """Wait, unless in check mode."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 60},
            **argument_spec.API,
        },
        supports_check_mode=True,
    )
    given = module.params
    server = io_client.Server(given["url"], given["ca_file"], given["server_name"])
    left, waited = io_status.drained(server, 0 if module.check_mode else given["seconds"])
    module.exit_json(open=left, waited=round(waited, 1))


if __name__ == "__main__":
    main()
