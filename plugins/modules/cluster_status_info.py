#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_status_info
short_description: Read the status of a cluster node and its server
version_added: 0.1.0
description:
  - Reads the services, the ranks with their memory, the driver, the fabric's links, and the last error. With O(url),
    queries the server too.
  - Requests one token from that server, because a server that reports healthy may be wedged.
options:
  url:
    description: The API's address, without path; empty on nodes without an API.
    type: str
    default: ""
  seconds:
    description: Seconds over which to measure the server's tokens per second.
    type: float
    default: 2
  timeout:
    description: Maximum seconds to wait for the token.
    type: int
    default: 20
seealso:
  - module: gb10.cluster.systemd_unit
  - module: gb10.cluster.vllm_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
  - gb10.cluster.api.key
"""

EXAMPLES = r"""
- name: Read the status of the head
  gb10.cluster.cluster_status_info:
    url: http://127.0.0.1:8000
  become: true
"""

RETURN = r"""
services:
  description: Each service as M(gb10.cluster.systemd_unit) returns it, with its closed gates as C(gate).
  returned: success
  type: list
  elements: dict
ranks:
  description: The processes with a share of the model, with pid, name and resident bytes.
  returned: success
  type: list
  elements: dict
available:
  description: Bytes of available memory.
  returned: success
  type: int
total:
  description: Total bytes of memory.
  returned: success
  type: int
uptime:
  description: Seconds since boot, without sleep, like systemd's timestamps.
  returned: success
  type: float
driver:
  description: The version of the GPU's driver; empty without one.
  returned: success
  type: str
gpu_state:
  description: As M(gb10.cluster.cluster_verify_info) returns it.
  returned: success
  type: dict
links:
  description: The interfaces that M(gb10.cluster.netplan_apply) configured, with their speed in Mb/s, their RDMA device
    and the state of its port.
  returned: success
  type: list
  elements: dict
  sample: [{"interface": enp1s0f1np1, "carrier": true, "speed": 200000, "hca": rocep1s0f1, "state": ACTIVE}]
error:
  description: >-
    The last error in the journals since boot and since the launch of the current record answered, with its unit and age
    in seconds; empty without one.
  returned: success
  type: dict
lock:
  description:
    - The run that holds the cluster's lock, as text and as values, with its age in seconds; empty without one.
  returned: success
  type: dict
  sample:
    text: alice@laptop runs site.yml (process 4711) since 2026-11-22 07:29:43 UTC
    age: 12.0
    held:
      user: alice
      host: laptop
      playbook: site.yml
      pid: "4711"
      since: "2026-11-22 07:29:43"
      age: "12"
image:
  description: The container image of the ranks and its ID; empty without containers.
  returned: success
  type: str
record:
  description: The ID of the current launch record; empty without one.
  returned: success
  type: str
watchdog:
  description: The status of the watchdog with whether its unit is active, empty without a watchdog.
  returned: success
  type: dict
  sample:
    {"active": true, "mode": report, "head": true, "armed": true, "stalled": 0, "witnesses": [], "last_alarm": "",
     "restarts": 0}
memory_guard:
  description: Whether the guard of the memory is active, the last starts of ranks with the lowest available memory in
    bytes, why it stopped the services, and what else it did; empty without it.
  returned: success
  type: dict
  sample:
    active: true
    starts:
      - {"time": 1795219871, "seconds": 214, "minimum": 33285996544, "floor": 2147483648, "phase": first requests,
         "end": answered}
    stop: {}
    done: ""
reboot:
  description: Whether a reboot is C(required), and the C(packages) that wait for it.
  returned: success
  type: dict
  sample: {"required": true, "packages": [linux-base]}
rests:
  description: For how many seconds the model rests until the next request, null if it does not. Only the head knows.
  returned: success
  type: float
flight_records:
  description: A line for each host that fell silent in the last day, as this node's flight recorder recorded it.
  returned: success
  type: list
  elements: str
api:
  description: The server's status, empty without O(url).
  returned: success
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as common_argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import io_records
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_status


def main() -> None:
    """Read the status."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "default": ""},
            **common_argument_spec.API,
            **common_argument_spec.API_KEY,
            "seconds": {"type": "float", "default": 2},
            "timeout": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        facts = io_status.node(runner(module))
        secret = io_client.api_key(params["key_file"], params["unit"])
        server = io_client.Server(params["url"], params["ca_file"], params["server_name"])
        api = io_status.api(server, secret, params["seconds"], params["timeout"]) if server.url else {}
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **facts, flight_records=io_records.status(time.time()), api=api)


if __name__ == "__main__":
    main()
