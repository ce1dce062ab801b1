#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: systemd_unit_info
short_description: Read a systemd service, and compare it with its planned unit and files
version_added: 0.1.0
description:
  - Units of this collection hold a digest of their launch inputs. If the digest in the running process's environment
    differs, a restart is needed, also after a run that was killed between writing and restarting.
options:
  name:
    description: The unit, with its suffix. O(service) sets it.
    type: str
  log:
    description: Whether to search the unit's journal for the cause of a failure.
    type: bool
    default: false
  service:
    description:
      - A service of this collection that the action plugin plans from C(gb10_plan) and the settings of C(gb10_inputs).
        It sets O(name), O(unit), O(files) and O(directories).
      - Secrets are launch inputs by the versions that earlier tasks registered.
    type: str
    choices: [flight_recorder, memory_guard, ray, vllm, watchdog]
  unit:
    description: The planned unit.
    type: dict
    suboptions:
      text:
        description: The text of the unit file.
        type: str
        required: true
      inputs:
        description: The digest of the launch inputs.
        type: str
        required: true
  directories:
    description: The planned folders of O(files), compared if O(unit) is given.
    type: list
    elements: path
    default: []
  files:
    description: The planned files that the unit runs or reads, compared if O(unit) is given. M(gb10.cluster.root_files)
      installs them.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path on the node.
        type: path
        required: true
      content:
        description: The text of the file.
        type: str
      program:
        description: A file of this collection, as in M(gb10.cluster.root_files), whose action plugin reads it.
        type: str
      packed:
        description: A packed program in Base64. The action plugin sets it.
        type: str
  broken:
    description: Why a service with unchanged inputs must be restarted; empty for no restart.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.root_files
  - module: gb10.cluster.cluster_status_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the service
  gb10.cluster.systemd_unit_info:
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
      description: C(loaded), or C(not-found) if the unit does not exist.
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
      description: The result of the last run.
      type: str
    pid:
      description: The main process, null if there is none.
      type: int
    status:
      description: Exit status of the last main process.
      type: int
    restarts:
      description: The number of restarts by systemd.
      type: int
    invocation:
      description: Identifier of the present invocation, as in the journal.
      type: str
    queued:
      description: Whether systemd has an unfinished job for it, such as a restart.
      type: bool
    started:
      description: Start time of the main process, in seconds since boot.
      type: float
    stopped:
      description: When the unit last began to stop, in seconds since boot, 0 if it never did.
      type: float
    container:
      description: Whether the loaded unit runs a container, which it removes when it stops.
      type: bool
    inputs:
      description: The digest of inputs in the running main process's environment, empty if there is none.
      type: str
restart_needed:
  description: Whether the running process has other launch inputs than O(unit), or O(broken) is not empty.
  returned: if O(unit) is given
  type: bool
restart_reason:
  description: Why the process must be restarted, empty if it need not. Other launch inputs come before O(broken).
  returned: if O(unit) is given
  type: str
start_needed:
  description: Whether the service must be started, enabled or restarted.
  returned: if O(unit) is given
  type: bool
differs:
  description: Whether the unit file differs from O(unit), an entry of O(files) or O(directories) differs, or an owner
    or mode is wrong.
  returned: if O(unit) is given
  type: bool
planned:
  description: C(name), C(unit), C(files) and C(directories) of O(service), and C(written), the files with the unit. For
    vLLM also C(launch), a digest that changes with any launch input of a rank.
  returned: if O(service) is given
  type: dict
cause:
  description: The first error in the last lines of its journal that does not repeat another, with cause and fix from
    docs/troubleshooting.md if known. Empty if none or not requested.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

_LOG_LINES = 300
_SOURCES = ("content", "program", "packed")
_FILE = {"path": {"type": "path", "required": True}, **{name: {"type": "str"} for name in _SOURCES}}


def main() -> None:
    """Return the facts."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str"},
            "service": {"type": "str", "choices": ["flight_recorder", "memory_guard", "ray", "vllm", "watchdog"]},
            "log": {"type": "bool", "default": False},
            "unit": {
                "type": "dict",
                "options": {"text": {"type": "str", "required": True}, "inputs": {"type": "str", "required": True}},
            },
            "directories": {"type": "list", "elements": "path", "default": []},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": _FILE,
                "mutually_exclusive": [_SOURCES],
                "required_one_of": [_SOURCES],
            },
            "broken": {"type": "str", "default": ""},
        },
        required_one_of=[("name", "service")],
        supports_check_mode=True,
    )
    name, planned, run = module.params["name"], module.params["unit"], runner(module)
    try:
        service = node_io_facts.service(run, name)
        entries = io_client.journal(run, io_client.of_unit(name), _LOG_LINES) if module.params["log"] else []
        compared = {}
        if planned:
            files = installed.unit_files(name, planned["text"], module.params["files"])
            differs = any(io_file.differs(path, content) for path, content in files.items())
            differs = differs or not all(map(io_file.installed_folder, module.params["directories"]))
            compared = installed.compared(service, planned["inputs"], module.params["broken"], differs)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    cause = symptoms.explain([message for _when, message in entries])
    module.exit_json(changed=False, service=service, cause=cause, **compared)


if __name__ == "__main__":
    main()
