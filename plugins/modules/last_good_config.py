#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: last_good_config
short_description: Record the launch inputs of a node's services after the model answered, or restore them
version_added: 0.1.0
description:
  - Records the current units, rank environment and role records, or restores the recorded ones.
  - Does not start or stop a service. The diff omits contents, because the environment may contain secrets.
options:
  state:
    description: V(present) records the current files, V(restored) restores the recorded ones.
    type: str
    choices: [present, restored]
    default: present
  start:
    description: Data about the launch to record with its files, a free-form mapping. Required with O(state=present).
    type: dict
  path:
    description: Path of the record.
    type: path
    default: /etc/gb10/last_good.json
seealso:
  - module: gb10.cluster.last_good_config_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Record the launch inputs of the model that answered
  gb10.cluster.last_good_config:
    start:
      id: 0123456789abcdef
      model: gpt-oss-20b
  become: true

- name: Restore the launch inputs of the last model that answered
  gb10.cluster.last_good_config:
    state: restored
  become: true
"""

RETURN = r"""
start:
  description: The recorded data about the launch.
  returned: always
  type: dict
differs:
  description: Files that differed from the record.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record


def main() -> None:
    """Record the launch inputs, or restore the recorded ones."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "restored"], "default": "present"},
            "start": {"type": "dict"},
            "path": {"type": "path", "default": io_record.RECORD},
        },
        required_if=[("state", "present", ["start"])],
        supports_check_mode=True,
    )
    state, path = module.params["state"], module.params["path"]
    try:
        record, now = io_record.read(path), io_record.present()
        if state == "restored" and not record["start"]:
            raise ValueError(f"{path} does not exist, so there is no launch to restore")
        differs = io_record.differences(record, now)
        wanted = {"start": module.params["start"], "files": now} if state == "present" else record
        changed = wanted != record if state == "present" else bool(differs)
        if changed and not module.check_mode:
            if state == "present":
                io_record.write(path, wanted)
            else:
                io_record.restore(record, differs)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    lines = "".join(f"{name}\n" for name in differs) if changed else ""
    module.exit_json(
        changed=changed,
        start=wanted["start"],
        differs=differs,
        diff={"before": "", "after": f"{state}:\n{lines}" if changed else ""},
    )


if __name__ == "__main__":
    main()
