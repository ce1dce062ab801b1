#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: service_info
short_description: Read a systemd service and from which inputs its running process was started
version_added: 0.1.0
description:
  - The units of this collection carry a digest of everything they are started from. Compared with the digest in the running
    process's environment it tells whether a restart is due, also after a run that was killed between writing and restarting.
options:
  name:
    description: The unit, with its suffix.
    type: str
    required: true
  log:
    description: Whether to look for the cause of a failure in the unit's journal.
    type: bool
    default: false
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the service
  gb10.cluster.service_info:
    name: gb10-ray.service
  become: true
  register: ray
"""

RETURN = r"""
service:
  description: The service.
  returned: always
  type: dict
  contains:
    unit:
      description: The unit's name.
      type: str
    load:
      description: C(loaded), or C(not-found) where there is no such unit.
      type: str
    enabled:
      description: Whether it starts at boot.
      type: bool
    active:
      description: systemd's ActiveState.
      type: str
    sub:
      description: systemd's SubState.
      type: str
    result:
      description: How the last run ended.
      type: str
    pid:
      description: The main process, null if there is none.
      type: int
    status:
      description: Exit status of the last main process.
      type: int
    restarts:
      description: How often systemd restarted it.
      type: int
    invocation:
      description: Identifier of the present start, as in the journal.
      type: str
    queued:
      description: Whether systemd has a job for it that is not done, such as a restart.
      type: bool
    started:
      description: When the main process started, in seconds since boot.
      type: float
    container:
      description: Whether the unit as systemd has it runs a container, which it removes when it ends.
      type: bool
    inputs:
      description: The digest of inputs in the running main process's environment, empty if there is none.
      type: str
cause:
  description: The first error in the last lines of its journal that is not an echo of another, empty if none or not asked for.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client as io_vllm
from ansible_collections.gb10.cluster.plugins.module_utils.health import log as serve_log
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node

_LOG_LINES = 300


def main() -> None:
    """Read and return."""
    module = AnsibleModule(
        argument_spec={"name": {"type": "str", "required": True}, "log": {"type": "bool", "default": False}}, supports_check_mode=True
    )
    name, run = module.params["name"], runner(module)
    try:
        service = io_node.service(run, name)
        entries = io_vllm.journal(run, io_vllm.of_unit(name), _LOG_LINES) if module.params["log"] else []
        module.exit_json(changed=False, service=service, cause=serve_log.root_cause([message for _when, message in entries]))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
