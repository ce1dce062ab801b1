#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: wheelhouse
short_description: Prepare a folder for the wheels of a lock, pack them for other nodes, or unpack them there
version_added: 0.1.0
description:
  - With O(device), verifies the free disk space, and creates the folder.
  - With O(pack), writes the wheels that the lock pins to one file.
  - With O(archive), adds the wheels in such a file of another node. Each one's SHA-256 must be in the lock.
options:
  folder:
    description: The folder. The wheels are in its folder C(wheels), the lock is C(requirements.lock).
    type: path
    required: true
  device:
    description: The device of the stack, which decides the required disk space.
    type: str
    choices: [cuda, cpu]
  pack:
    description: The file to write.
    type: path
  archive:
    description: The file of another node.
    type: path
seealso:
  - module: gb10.cluster.container_image
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Add the wheels of the head
  gb10.cluster.wheelhouse:
    folder: /opt/gb10/runtime/.wheels
    archive: /opt/gb10/runtime/.wheels/received/wheels.tar
  become: true
"""

RETURN = r"""
packed_sha256:
  description: SHA-256 of O(pack).
  returned: with O(pack), except in check mode
  type: str
wheels:
  description: The number of wheels in O(archive).
  returned: with O(archive), except in check mode
  type: int
"""

import os
import tarfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_wheelhouse, wheelhouse


def prepare(folder: str, device: str, check: bool) -> bool:
    """Create the folder, and return whether it was missing. Raises ProblemsError, OSError."""
    wheels = f"{folder}/wheels"
    # Files that an interrupted run left need no more space.
    if not os.path.isdir(wheels):
        refuse(wheelhouse.check_disk(folder, io_wheelhouse.free_bytes(folder), device))
    missing = [each for each in (folder, wheels) if not io_file.installed_folder(each)]
    for each in missing:
        if not check:
            io_file.install_folder(each)
    return bool(missing)


def main() -> None:
    """Prepare the folder, or pack or unpack its wheels."""
    ways = ["device", "pack", "archive"]
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "device": {"type": "str", "choices": ["cuda", "cpu"]},
            "pack": {"type": "path"},
            "archive": {"type": "path"},
        },
        mutually_exclusive=[ways],
        required_one_of=[ways],
        supports_check_mode=True,
    )
    params, folder = module.params, module.params["folder"]
    changed, result = True, dict[str, Any]()
    try:
        if params["device"]:
            changed = prepare(folder, params["device"], module.check_mode)
        elif not module.check_mode:
            wanted = wheelhouse.hashes(io_file.read_file(f"{folder}/requirements.lock")[0] or "")
            if params["pack"]:
                io_file.install_folder(os.path.dirname(params["pack"]))
                result["packed_sha256"] = io_wheelhouse.pack(f"{folder}/wheels", wanted, params["pack"])
            else:
                result["wheels"] = io_wheelhouse.unpack(params["archive"], f"{folder}/wheels", wanted)
    except (ProblemsError, OSError, tarfile.TarError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed, diff={"before": "", "after": f"{folder}\n" if changed else ""}, **result)


if __name__ == "__main__":
    main()
