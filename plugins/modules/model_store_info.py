#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_store_info
short_description: Read the state of a model's folder on a node, and the progress of a copy
version_added: 0.1.0
description:
  - Returns whether a model's folder is complete by its manifest and file sizes, its existing files, and the free space.
options:
  folder:
    description: The model's folder.
    type: path
    required: true
  unit:
    description: The unit that copies the model to this node. If set, the module also returns RV(progress).
    type: str
    default: ""
  status:
    description: The unit's status file.
    type: path
seealso:
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Check whether the node has the model
  gb10.cluster.model_store_info:
    folder: /opt/gb10/models/openai--gpt-oss-120b/main
  become: true
  register: stored
"""

RETURN = r"""
manifest:
  description: The model's manifest, null if this node has none.
  returned: always
  type: dict
  contains:
    model:
      description: Its name on Hugging Face Hub, or its source folder.
      type: str
    revision:
      description: The requested revision.
      type: str
    commit:
      description: The commit of the revision at download time.
      type: str
    files:
      description: Each file's path, size and SHA-256.
      type: list
      elements: dict
digest:
  description: A digest of the manifest's files, empty without a manifest.
  returned: always
  type: str
complete:
  description: Whether every file in the manifest exists with its size.
  returned: always
  type: bool
there:
  description: The existing bytes of each file by path, also of partial files.
  returned: always
  type: dict
free_bytes:
  description: The free bytes in the file system of the folder, which may not exist yet.
  returned: always
  type: int
left:
  description: Whether the folder of the status file exists. A run removes it at its end.
  returned: always
  type: bool
progress:
  description: The unit's progress, null without O(unit).
  returned: always
  type: dict
  contains:
    active:
      description: systemd's ActiveState of the unit.
      type: str
    state:
      description: C(checking), C(receiving), C(complete) or C(failed); empty without a status file.
      type: str
    done:
      description: The existing bytes.
      type: int
    total:
      description: The model's total bytes.
      type: int
    reason:
      description: The reason of a failure.
      type: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts


def progress(module: Any) -> dict[str, Any] | None:
    """Return the unit's progress, None without a unit."""
    if not module.params["unit"]:
        return None
    active = node_io_facts.service(runner(module), module.params["unit"])["active"]
    reported = io_json.json_file(module.params["status"]) if module.params["status"] else None
    return {"active": active, **(reported or {"state": "", "done": 0, "total": 0, "reason": ""})}


def main() -> None:
    """Read the folder and return its state."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "unit": {"type": "str", "default": ""},
            "status": {"type": "path"},
        },
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    try:
        known = io_files.manifest(folder)
        module.exit_json(
            changed=False,
            manifest=known.plain() if known else None,
            digest=known.digest if known else "",
            complete=io_files.complete(folder),
            there=io_files.there(folder),
            free_bytes=io_file.free_bytes(folder),
            left=bool(module.params["status"]) and os.path.isdir(os.path.dirname(module.params["status"])),
            # Read last, so that a unit that has ended in the meantime has written its result.
            progress=progress(module),
        )
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
