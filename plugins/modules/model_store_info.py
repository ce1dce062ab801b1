#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_store_info
short_description: Read what a node has of a model, and how far a copy has come
version_added: 0.1.0
description:
  - Tells whether a model's folder is complete by its manifest and the sizes of its files, what of it is there, and how much room is left.
options:
  folder:
    description: The model's folder.
    type: path
    required: true
  unit:
    description: The unit that copies the model to this node. With it, also tells how far it is.
    type: str
    default: ""
  status:
    description: The file that such a unit tells it in.
    type: path
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Look whether the node has the model
  gb10.cluster.model_store_info:
    folder: /opt/gb10/models/openai--gpt-oss-120b/main
  become: true
  register: stored
"""

RETURN = r"""
manifest:
  description: What the model consists of, null if that is not known here.
  returned: always
  type: dict
  contains:
    model:
      description: Its name on the hub, or the folder that it was copied from.
      type: str
    revision:
      description: The revision that was asked for.
      type: str
    commit:
      description: The commit that this was.
      type: str
    files:
      description: Each file's path, size and SHA-256.
      type: list
      elements: dict
digest:
  description: What tells this manifest's files from those of another, empty if there is none.
  returned: always
  type: str
complete:
  description: Whether every file of the manifest has its size.
  returned: always
  type: bool
there:
  description: The bytes that are there of each file, by its path; also of files that have come in part.
  returned: always
  type: dict
free_bytes:
  description: The room that is left where the folder is or would be.
  returned: always
  type: int
left:
  description: Whether the folder of the status file is there, which a run removes at its end.
  returned: always
  type: bool
progress:
  description: How far the unit is, null if there is none.
  returned: always
  type: dict
  contains:
    active:
      description: systemd's ActiveState of the unit.
      type: str
    state:
      description: C(checking), C(receiving), C(complete) or C(failed); empty if it did not tell.
      type: str
    done:
      description: The bytes that are there.
      type: int
    total:
      description: The bytes of the model.
      type: int
    reason:
      description: Why it failed.
      type: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files as io_model_files
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node


def progress(module: Any) -> dict[str, Any] | None:
    """Return how far the unit is, None if none was named."""
    if not module.params["unit"]:
        return None
    active = io_node.service(runner(module), module.params["unit"])["active"]
    told = io_json.json_file(module.params["status"]) if module.params["status"] else None
    return {"active": active, **(told or {"state": "", "done": 0, "total": 0, "reason": ""})}


def main() -> None:
    """Read and return."""
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
        known = io_model_files.manifest(folder)
        module.exit_json(
            changed=False,
            manifest=known,
            digest=model_store.digest(known),
            complete=io_model_files.complete(folder),
            there=io_model_files.there(folder),
            free_bytes=io_model_files.free_bytes(folder),
            left=bool(module.params["status"]) and os.path.isdir(os.path.dirname(module.params["status"])),
            # Last read, so that a unit that ended meanwhile has told its outcome.
            progress=progress(module),
        )
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
