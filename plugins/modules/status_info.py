#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: status_info
short_description: Read how a node of the cluster and its server are doing
version_added: 0.1.0
description:
  - Reads the services, the ranks with their memory, the last error since boot and, where an address is given, what the server says of itself.
  - Asks that server for one token, because a healthy one may be wedged.
options:
  url:
    description: The API's address, without path; empty on nodes that have no API.
    type: str
    default: ""
  seconds:
    description: For how long the server is watched to tell its tokens a second.
    type: float
    default: 2
  timeout:
    description: Seconds within which the token must come.
    type: int
    default: 20
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
  - gb10.cluster.api.key
"""

EXAMPLES = r"""
- name: Read the head
  gb10.cluster.status_info:
    url: http://127.0.0.1:8000
  become: true
"""

RETURN = r"""
services:
  description: Each service as M(gb10.cluster.service_info) returns it.
  returned: success
  type: list
  elements: dict
ranks:
  description: The processes that hold a share of the model, with pid, name and resident bytes.
  returned: success
  type: list
  elements: dict
available:
  description: Bytes of memory that are available.
  returned: success
  type: int
total:
  description: Bytes of memory in all.
  returned: success
  type: int
uptime:
  description: Seconds since boot, without those asleep, as systemd counts.
  returned: success
  type: float
error:
  description: The last error in the journals since boot, with its unit and age in seconds; empty if there is none.
  returned: success
  type: dict
lock:
  description: Whose run has the cluster's lock, as text, with its age in seconds; empty if none has it.
  returned: success
  type: dict
  sample: {"text": "alice@laptop runs site.yml (process 4711) since 2026-11-22 07:29:43 UTC", "age": 12.5}
api:
  description: What the server says of itself, empty where no address was given.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as arguments
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client as io_vllm
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_status


def main() -> None:
    """Read and return."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "default": ""},
            **arguments.API,
            **arguments.API_KEY,
            "seconds": {"type": "float", "default": 2},
            "timeout": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        facts = io_status.node(runner(module))
        server = io_vllm.Server(params["url"], params["ca_file"], params["server_name"])
        api = io_status.api(server, params["key_file"], params["seconds"], params["timeout"], params["unit"]) if server.url else {}
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **facts, api=api)


if __name__ == "__main__":
    main()
