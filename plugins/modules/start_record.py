#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: start_record
short_description: Remember what a node's services were started from when the model answered, and put that back
version_added: 0.1.0
description:
  - Keeps the units, the environment of the ranks and what roles recorded, as they are now, or puts them back as they were kept.
  - Starts and stops nothing. Contents are not shown, because the environment may hold what nobody should see.
options:
  state:
    description: C(kept) to remember what is there now, C(restored) to put back what was remembered, C(read) to compare the two.
    type: str
    choices: [kept, restored, read]
    default: read
  start:
    description: What to remember of the start beside its files, a free-form mapping. With O(state=kept).
    type: dict
    default: {}
  path:
    description: The record.
    type: path
    default: /etc/gb10/good.json
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Put back what the last model that answered was started from
  gb10.cluster.start_record:
    state: restored
  become: true
"""

RETURN = r"""
start:
  description: What was remembered of the start, empty if nothing was.
  returned: always
  type: dict
differs:
  description: The files that differed from the record.
  returned: always
  type: list
  elements: str
units:
  description: The services that the record has, in the order in which they are started.
  returned: always
  type: list
  elements: str
present:
  description: The services that were there before the module ran, in the same order.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record as io_start
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import plan as way_back


def main() -> None:
    """Compare, and do what the state asks for."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["kept", "restored", "read"], "default": "read"},
            "start": {"type": "dict", "default": {}},
            "path": {"type": "path", "default": way_back.RECORD},
        },
        supports_check_mode=True,
    )
    state, path = module.params["state"], module.params["path"]
    try:
        record, now = io_start.read(path), io_start.present()
        if state == "restored" and not record["start"]:
            raise ValueError(f"{path} does not exist, so there is nothing to put back")
        differs = io_start.differences(record, now)
        wanted = {"start": module.params["start"], "files": now} if state == "kept" else record
        changed = wanted != record if state == "kept" else state == "restored" and bool(differs)
        if changed and not module.check_mode:
            if state == "kept":
                io_start.write(path, wanted)
            else:
                io_start.restore(record, differs)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    lines = "".join(f"{name}\n" for name in differs) if changed else ""
    module.exit_json(
        changed=changed,
        start=wanted["start"],
        differs=differs,
        units=way_back.units(wanted["files"]),
        present=way_back.units(now),
        diff={"before": "", "after": f"{state}:\n{lines}" if changed else ""},
    )


if __name__ == "__main__":
    main()
