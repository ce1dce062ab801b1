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
  - Tells whether the service runs and from which inputs, whether its API is healthy, how far its start has come and, where it
    failed, the root cause from the log instead of the last traceback.
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
    description: The served model's name. With it, a healthy API is asked for one token.
    type: str
    default: ""
  timeout:
    description: Seconds within which that token must come.
    type: int
    default: 60
  key_file:
    description: >-
      A file on the host with the API's key, for that token; none is sent if the name is empty or there is no such file, and none to others than
      the unit.
    type: path
    default: ""
  invocation:
    description: Read the log of this earlier start instead of the present one's.
    type: str
    default: ""
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
"""

EXAMPLES = r"""
- name: Ask whether the model answers
  gb10.cluster.vllm_info:
    url: http://127.0.0.1:8000
    model: tiny
  become: true
"""

RETURN = r"""
service:
  description: As M(gb10.cluster.service_info) returns it.
  returned: always
  type: dict
healthy:
  description: Whether /health says 200.
  returned: always
  type: bool
untrusted:
  description: What is wrong with the TLS of what answers there, empty if nothing is.
  returned: always
  type: str
answers:
  description: Whether a token came, null if none was asked for.
  returned: always
  type: bool
reason:
  description: Why none came.
  returned: always
  type: str
progress:
  description: The last step of the start that the log tells of.
  returned: always
  type: str
cause:
  description: The first error in the log that is not an echo of another.
  returned: always
  type: str
ready_after:
  description: Seconds from the start of the process until the API was up, null if the log does not tell.
  returned: always
  type: float
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as arguments
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client as io_vllm
from ansible_collections.gb10.cluster.plugins.module_utils.health import log as serve_log
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node

_LOG_LINES = 3000


def main() -> None:
    """Read all three and return."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "gb10-vllm.service"},
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "default": ""},
            "timeout": {"type": "int", "default": 60},
            "key_file": {"type": "path", "default": "", "no_log": False},
            "invocation": {"type": "str", "default": ""},
            **arguments.API,
        },
        supports_check_mode=True,
    )
    params, run = module.params, runner(module)
    try:
        service = io_node.service(run, params["name"])
        server = io_vllm.Server(params["url"], params["ca_file"], params["server_name"])
        healthy, untrusted = io_vllm.health(server) if service["pid"] else (False, "")
        answers, reason = None, ""
        if healthy and params["model"]:
            answers, reason = io_vllm.answers(server, params["model"], params["timeout"], params["key_file"], params["name"])
        invocation = params["invocation"] or service["invocation"]
        entries = io_vllm.journal(run, io_vllm.of_start(invocation), _LOG_LINES) if invocation else []
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    lines = [message for _when, message in entries]
    module.exit_json(
        changed=False,
        service=service,
        healthy=healthy,
        untrusted=untrusted,
        answers=answers,
        reason=reason,
        progress=serve_log.progress(lines),
        cause=serve_log.root_cause(lines),
        ready_after=io_vllm.ready_after(entries, service["started"]),
    )


if __name__ == "__main__":
    main()
