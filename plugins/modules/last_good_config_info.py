#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: last_good_config_info
short_description: Compare the launch inputs of a node's services with the record of the last good ones
version_added: 0.1.0
description:
  - Reads the record that M(gb10.cluster.last_good_config) wrote, and compares it with the current units, rank
    environment and role records. Contents are not returned, because the environment may contain secrets.
options:
  path:
    description: Path of the record.
    type: path
    default: /etc/gb10/last_good.json
seealso:
  - module: gb10.cluster.last_good_config
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the record of the last model that answered
  gb10.cluster.last_good_config_info:
  become: true
  register: record
"""

RETURN = r"""
start:
  description: The recorded data about the launch, empty without a record.
  returned: always
  type: dict
differs:
  description: Files that differ from the record.
  returned: always
  type: list
  elements: str
units:
  description: Services in the record, in start order.
  returned: always
  type: list
  elements: str
present:
  description: Services that exist now, in start order.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record


def main() -> None:
    """Read the record, and compare it with the node."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "default": io_record.RECORD}},
        supports_check_mode=True,
    )
    try:
        record, now = io_record.read(module.params["path"]), io_record.present()
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        start=record["start"],
        differs=io_record.differences(record, now),
        units=io_record.units(record["files"]),
        present=io_record.units(now),
    )


if __name__ == "__main__":
    main()
