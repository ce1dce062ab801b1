#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: systemd_unit
short_description: Read a systemd service, compare it with its planned unit and files, install, start or remove it
version_added: 0.1.0
description:
  - Units of this collection hold a digest of their launch inputs. If the digest in the running process's environment
    differs, a restart is needed, also after a run that was killed between writing and restarting.
  - All returned facts are those from before a change.
options:
  name:
    description: The unit, with its suffix. O(service) sets it.
    type: str
  state:
    description:
      - With V(read), nothing changes.
      - With V(written), the folders, files and the unit are written.
      - With V(started), the service is also enabled, and started, or restarted if its launch inputs changed. The module
        does not wait for it.
      - With V(stopped), the service is stopped and disabled if it exists.
      - With V(absent), also its unit and O(removed) are removed.
    type: str
    choices: [read, written, started, stopped, absent]
    default: read
  allowed:
    description: Whether a running service may be restarted, or stopped by O(state=absent). Otherwise the module fails
      before any change.
    type: bool
    default: true
  removed:
    description: Files and folders that O(state=absent) removes, before the unit. Links are not followed.
    type: list
    elements: path
    default: []
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
    choices: [fallback, flight_recorder, memory_guard, ray, vllm, watchdog]
  unit:
    description: The planned unit. Without it, O(state=started) starts the service with the unit that the node has.
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
    description: The planned folders of O(files), as in M(gb10.cluster.root_files).
    type: list
    elements: path
    default: []
  files:
    description: The planned files that the unit runs or reads, as in M(gb10.cluster.root_files).
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
        description: A file of this collection. The action plugin of this name reads it.
        type: str
      packed:
        description: A packed program in Base64. The action plugin sets it.
        type: str
      state:
        description: Whether the file exists.
        type: str
        choices: [present, absent]
        default: present
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
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Read the service
  gb10.cluster.systemd_unit:
    name: gb10-ray.service
  become: true
  register: ray

- name: Run the watchdog of the plan
  gb10.cluster.systemd_unit:
    service: watchdog
    state: started
  become: true
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
drops:
  description: Whether the restart ends a running process.
  returned: if O(unit) is given
  type: bool
differs:
  description: Whether the unit file differs from O(unit), an entry of O(files) or O(directories) differs, or an owner
    or mode is wrong.
  returned: if O(unit) is given
  type: bool
planned:
  description: C(name), C(unit), C(files) and C(directories) of O(service). For vLLM also C(launch), a digest that
    changes with any launch input of a rank.
  returned: if O(service) is given
  type: dict
cause:
  description: The first error in the last lines of its journal that does not repeat another, with cause and fix from
    docs/troubleshooting.md if known. Empty if none or not requested.
  returned: always
  type: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_root_files, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed, io_unit
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

_LOG_LINES = 300


def main() -> None:
    """Read, compare and change the service."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str"},
            "service": {
                "type": "str",
                "choices": ["fallback", "flight_recorder", "memory_guard", "ray", "vllm", "watchdog"],
            },
            "state": {
                "type": "str",
                "choices": ["read", "written", "started", "stopped", "absent"],
                "default": "read",
            },
            "allowed": {"type": "bool", "default": True},
            "removed": {"type": "list", "elements": "path", "default": []},
            "log": {"type": "bool", "default": False},
            "unit": {
                "type": "dict",
                "options": {"text": {"type": "str", "required": True}, "inputs": {"type": "str", "required": True}},
            },
            "directories": {"type": "list", "elements": "path", "default": []},
            "files": io_root_files.ENTRY,
            "broken": {"type": "str", "default": ""},
        },
        required_one_of=[("name", "service")],
        required_if=[("state", "written", ["unit"])],
        supports_check_mode=True,
    )
    try:
        found = _read(module)
        found |= _removed(module, found) if module.params["state"] in ("stopped", "absent") else _written(module, found)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**found)


def _read(module: AnsibleModule) -> dict[str, Any]:
    name, run = module.params["name"], runner(module)
    service = node_io_facts.service(run, name)
    entries = io_client.journal(run, io_client.of_unit(name), _LOG_LINES) if module.params["log"] else []
    return {"changed": False, "service": service, "cause": symptoms.explain([text for _when, text in entries])}


def _written(module: AnsibleModule, found: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the service with its plan, and do what the state requires."""
    given, service, planned = module.params, found["service"], module.params["unit"] or {}
    unit = f"{paths.UNIT_FOLDER}/{given['name']}"
    # A run that is killed before the unit writes all of them again.
    files = {**io_root_files.wanted(given["files"]), **({unit: planned["text"]} if planned else {})}
    change = io_root_files.change(given["directories"], files)
    compared = installed.compared(service, planned.get("inputs", service["inputs"]), given["broken"], change.due)
    if given["state"] == "read":
        return compared if planned else {}
    restarts, starts = compared["restart_needed"], given["state"] == "started" and compared["start_needed"]
    if compared["drops"] and not given["allowed"]:
        raise ValueError(installed.refusal(given["name"], "restarted", compared["restart_reason"]))
    difference = change.difference()
    if not module.check_mode:
        change.install()
        if starts:
            io_unit.start(runner(module), service, restarts, reload=restarts or unit in change.files or not planned)
    return {**compared, "changed": change.due or starts, "diff": difference}


def _removed(module: AnsibleModule, found: Mapping[str, Any]) -> dict[str, Any]:
    """Stop the service, and remove it with its files if it must be absent."""
    given, service, run = module.params, found["service"], runner(module)
    absent = given["state"] == "absent"
    left = io_unit.present([*given["removed"], f"{paths.UNIT_FOLDER}/{given['name']}"]) if absent else []
    if absent and service["pid"] is not None and not given["allowed"]:
        raise ValueError(installed.refusal(given["name"], "stopped", given["broken"]))
    stops = io_unit.stoppable(service)
    if not module.check_mode:
        if stops:
            io_unit.stop(run, service)
        if left:
            io_unit.remove(run, left)
    before = "".join(f"{line}\n" for line in [*([f"{given['name']} is enabled or runs"] if stops else []), *left])
    return {"changed": stops or bool(left), "diff": {"before": before, "after": ""}}


if __name__ == "__main__":
    main()
