#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: launch_record_info
short_description: Read the launch records of a node, and compare its services' launch inputs with the current one
version_added: 0.1.0
description:
  - Reads the records that M(gb10.cluster.launch_record) wrote, and compares the current record with the units, rank
    environment and role records. Contents of files are not returned.
options:
  missing:
    description: Whether to look for the runtime, model, patches and NCCL of each record.
    type: bool
    default: false
  all:
    description: Whether to return every record, and not only facts of the current one.
    type: bool
    default: true
  keep_runtimes:
    description: As for M(gb10.cluster.launch_record), for RV(settled).
    type: int
    default: 2
  folder:
    description: The folder of the records.
    type: path
    default: /etc/gb10/records
seealso:
  - module: gb10.cluster.launch_record
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the records of the launches that answered
  gb10.cluster.launch_record_info:
  become: true
  register: known
"""

RETURN = r"""
current:
  description: The ID of the last launch that answered; empty without one.
  returned: always
  type: str
settled:
  description: Whether M(gb10.cluster.launch_record) would change nothing if the current record is also that of the
    plan.
  returned: always
  type: bool
start:
  description: The current record's data to verify the launch; empty without a record.
  returned: always
  type: dict
differs:
  description: Files that differ from the current record.
  returned: always
  type: list
  elements: str
units:
  description: Services in the current record, in start order.
  returned: always
  type: list
  elements: str
present:
  description: Services that exist now, in start order.
  returned: always
  type: list
  elements: str
records:
  description: Each record with its ID, content, time, parent, result of the golden answers, findings of the rules,
    logged choices of the ranks, seconds of the start's parts, and missing items.
  returned: if O(all) is true
  type: list
  elements: dict
invalid:
  description: Each record that cannot be used, with the reason.
  returned: always
  type: list
  elements: str
launch:
  description: The digests of the launch files now, paths of files with secrets, the GPU's driver and the kernel.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record


def main() -> None:
    """Read the records, and compare the current one with the node."""
    module = AnsibleModule(
        argument_spec={
            "missing": {"type": "bool", "default": False},
            "all": {"type": "bool", "default": True},
            "keep_runtimes": {"type": "int", "default": 2},
            "folder": {"type": "path", "default": io_record.FOLDER},
        },
        supports_check_mode=True,
    )
    run = runner(module)
    try:
        store, now = io_record.read(module.params["folder"]), io_record.launch_files()
        current = store.of_current
        files = io_record.wanted(store, current) if current else {}
        listed = [
            {
                "id": name,
                **{key: getattr(record, key) for key in rollback_record.REPORTED},
                "missing": io_record.missing(run, record) if module.params["missing"] else [],
            }
            for name, record in (store.found if module.params["all"] else {}).items()
        ]
        launch = io_record.launch(node_io_facts.gpu(run))
        differs = io_record.differences(files, now | io_record.present(rollback_record.SECRET_FILES))
        state = io_record.current(store, module.params["keep_runtimes"])
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        **state,
        start=current.content["start"] if current else {},
        differs=differs,
        units=io_record.units(files),
        present=io_record.units(now),
        **({"records": listed} if module.params["all"] else {}),
        invalid=list(store.invalid.values()),
        launch=launch,
    )


if __name__ == "__main__":
    main()
