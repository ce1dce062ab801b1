#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: launch_record
short_description: Record the launch inputs of a node's services after the model answered, or restore a record
version_added: 0.1.0
description:
  - Records the current units, rank environment and role records under the SHA-256 of O(content), or restores the files
    of a record.
  - Does not start or stop a service. The diff omits contents, because the environment may contain private names.
  - Files with secrets are not in a record. The module keeps those of the current record in a separate file.
  - A new record has the choices of vLLM's ranks, such as the attention backend, and the seconds of each part of the
    start, from the log of the running one.
  - With O(state=present), removes the environments of older records, see O(keep_runtimes).
options:
  state:
    description:
      - V(present) records the current files and makes the record the current one.
      - V(restored) restores the files of O(id).
      - V(selected) makes O(id) the current record.
    type: str
    choices: [present, restored, selected]
    default: present
  content:
    description: The content of the record, a free-form mapping. Required with O(state=present) without O(launches).
    type: dict
  node:
    description: The node's name in O(content). Required with it.
    type: str
  time:
    description: The time of the launch in UTC, such as C(2026-11-22 07:29:43).
    type: str
    default: ""
  golden:
    description: The result of the golden answers as one line; empty if they were not compared.
    type: str
    default: ""
  findings:
    description: The findings of the rules about the launch.
    type: list
    elements: str
  launches:
    description:
      - The variable of each node with its launch inputs, as M(gb10.cluster.launch_record_info) returns them.
      - With it, the action plugin sets O(content), O(node), O(time), O(golden) and O(findings) from C(gb10_plan), and
        does not connect to a node whose current record is this launch.
    type: str
    default: ""
  id:
    description: The ID of a record; empty for the current one.
    type: str
    default: ""
  keep:
    description: The number of records to keep. The current record and the one before it are always kept.
    type: int
    default: 20
  keep_runtimes:
    description: The number of environments to keep of those that the records name, newest first. The current record's
      environment and those in use are always kept.
    type: int
    default: 2
  folder:
    description: The folder of the records.
    type: path
    default: /etc/gb10/records
seealso:
  - module: gb10.cluster.launch_record_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Record the launch inputs of the model that answered
  gb10.cluster.launch_record:
    launches: launch
  become: true

- name: Restore the launch inputs of the last model that answered
  gb10.cluster.launch_record:
    state: restored
  become: true
"""

RETURN = r"""
id:
  description: The ID of the record.
  returned: always
  type: str
differs:
  description: Files that differed from the record.
  returned: always
  type: list
  elements: str
removed:
  description: The removed environments.
  returned: always
  type: list
  elements: str
units:
  description: Services in the record, in start order.
  returned: always
  type: list
  elements: str
runtime:
  description: The runtime of the record.
  returned: always
  type: dict
nccl:
  description: The NCCL build that replaces the library of the record's runtime; empty for the runtime's own library.
  returned: always
  type: str
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_choices
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_environments


def _with_choices(module: AnsibleModule, record: rollback_record.Record, current: str) -> rollback_record.Record:
    """Return a new record with the choices in the log of the running vLLM. An unreadable log is a warning."""
    if record.id == current:
        return record
    run = runner(module)
    try:
        service = node_io_facts.service(run, paths.VLLM_UNIT)
        found = io_choices.read(run, service) if service["pid"] else {"processes": (), "start": {}}
        return replace(record, choices=found["processes"], started=found["start"])
    except ValueError as error:
        module.warn(f"the launch record has no choices of vLLM: {error}")
        return record


def _save(
    module: AnsibleModule, store: io_record.Store, record: rollback_record.Record, secrets: Mapping[str, Any]
) -> tuple[bool, list[str]]:
    """Save a record, and remove runtimes that no kept record needs. Return whether something changed, and these."""
    found = {**store.found, record.id: record}
    removed = io_environments.unused(rollback_record.obsolete(found, record.id, module.params["keep_runtimes"]))
    changed = io_record.save(store, record, module.params["keep"], secrets, not module.check_mode) or bool(removed)
    if not module.check_mode:
        io_environments.remove(removed)
    return changed, removed


def main() -> None:
    """Record the launch inputs, restore the recorded ones, or select a record."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "restored", "selected"], "default": "present"},
            "content": {"type": "dict"},
            "node": {"type": "str"},
            "time": {"type": "str", "default": ""},
            "golden": {"type": "str", "default": ""},
            "findings": {"type": "list", "elements": "str"},
            "launches": {"type": "str", "default": ""},
            "id": {"type": "str", "default": ""},
            "keep": {"type": "int", "default": 20},
            "keep_runtimes": {"type": "int", "default": 2},
            "folder": {"type": "path", "default": io_record.FOLDER},
        },
        required_if=[("state", "present", ["content", "launches"], True)],
        required_together=[("content", "node")],
        supports_check_mode=True,
    )
    params = module.params
    removed: list[str] = []
    try:
        store, now = io_record.read(params["folder"]), io_record.launch_files()
        secrets = io_record.present(rollback_record.SECRET_FILES)
        if params["state"] == "present":
            given = {key: params[key] for key in ("time", "golden", "findings")}
            made = rollback_record.Record(params["content"] or {}, params["node"] or "", now, **given)
            record = _with_choices(module, rollback_record.complete(made), store.current)
        else:
            record = io_record.stored(store, params["id"])
        files = io_record.wanted(store, record)
        differs = io_record.differences(files, now | secrets)
        if params["state"] == "present":
            changed, removed = _save(module, store, record, secrets)
        elif params["state"] == "restored":
            changed = bool(differs)
            if not module.check_mode:
                io_record.restore(files, differs)
        else:
            changed = record.id != store.current
            if changed and not module.check_mode:
                io_record.select(store, record.id, secrets)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    lines = "".join(f"{name}\n" for name in [*differs, *(f"removed {path}" for path in removed)]) if changed else ""
    module.exit_json(
        changed=changed,
        id=record.id,
        differs=differs,
        removed=removed,
        units=io_record.units(record.files),
        runtime=record.content["plan"]["runtime"],
        nccl=rollback_record.nccl_library(record),
        diff={
            "before": "",
            "after": f"{params['state']} {record.id[: rollback_record.SHOWN]}:\n{lines}" if changed else "",
        },
    )


if __name__ == "__main__":
    main()
