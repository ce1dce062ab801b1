#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_info
short_description: Read the state of a vLLM service from systemd, its journal and its API
version_added: 0.1.0
description:
  - Reports whether the service runs, its launch inputs, whether its API is healthy and the progress of its start. After
    a failure it reports the root cause from the log instead of the last traceback.
options:
  name:
    description: The unit.
    type: str
    default: gb10-vllm.service
  url:
    description: The API's address, without path.
    type: str
    required: true
  model:
    description: The served model's name. With it, a healthy API receives a request for one token.
    type: str
    default: ""
  timeout:
    description: Maximum seconds to wait for that token.
    type: int
    default: 60
  key_file:
    description: >-
      File on the host with the API key, for that token. The key is not sent if the name is empty, the file is absent,
      or another process than the unit's listens on the port.
    type: path
    default: ""
  invocation:
    description: Read the log of this earlier start instead of the current one's.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.vllm_smoke_test
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
"""

EXAMPLES = r"""
- name: Verify that the model answers
  gb10.cluster.vllm_info:
    url: http://127.0.0.1:8000
    model: tiny
  become: true
"""

RETURN = r"""
service:
  description: The result of M(gb10.cluster.systemd_unit).
  returned: always
  type: dict
healthy:
  description: Whether /health returns 200.
  returned: always
  type: bool
untrusted:
  description: The TLS error of the server on that port, empty without one.
  returned: always
  type: str
answers:
  description: Whether a token arrived, null if none was requested.
  returned: always
  type: bool
reason:
  description: Why no token arrived.
  returned: always
  type: str
progress:
  description: The last step of the start in the log.
  returned: always
  type: str
cause:
  description: The first error in the log that is not an echo of another, with cause and fix from
    docs/troubleshooting.md if known.
  returned: always
  type: str
ready_after:
  description: Seconds from the start of the process until the API was up, null if the log does not show it.
  returned: always
  type: float
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as common_argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_server


def main() -> None:
    """Read the service, its API and its log."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "gb10-vllm.service"},
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "default": ""},
            "timeout": {"type": "int", "default": 60},
            "key_file": {"type": "path", "default": "", "no_log": False},
            "invocation": {"type": "str", "default": ""},
            **common_argument_spec.API,
        },
        supports_check_mode=True,
    )
    try:
        found = io_server.read(runner(module), module.params)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
