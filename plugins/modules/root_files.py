#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: root_files
short_description: Install small files that every user may read and root alone may change
version_added: 0.1.0
description:
  - Writes all files of a role in one call, atomically, with mode 0644.
  - A file or folder of another owner, with another mode, or a link in a file's place is replaced or corrected, whatever
    its content.
  - Programs are files of this collection that nodes run without Ansible. The action plugin of this name reads them on
    the controller.
  - A program that imports other files of this collection becomes one file, which Python runs. The difference shows its
    sources.
  - Not for secrets, because the difference shows the content.
options:
  directories:
    description: Folders for the files, with mode 0755. Missing folders above them are created too.
    type: list
    elements: path
    default: []
  files:
    description: The files. Each entry has O(files[].content), O(files[].program), or O(files[].state=absent).
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
        description: A file of this collection below plugins/module_utils, such as V(api/io_guard.py). Without C(.py),
          such as V(launch/io_gates), the file is packed with all files of this collection that it imports.
        type: str
      packed:
        description: A packed program in Base64. The action plugin sets it.
        type: str
      state:
        description: Whether the file exists.
        type: str
        choices: [present, absent]
        default: present
seealso:
  - module: gb10.cluster.systemd_unit
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Install the program that waits for Ray
  gb10.cluster.root_files:
    files:
      - path: /usr/local/lib/gb10-wait-for-ray.py
        program: launch/io_ray
  become: true
"""

RETURN = r"""
changed_paths:
  description: The folders that were created or corrected, and the files that were written or removed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_root_files


def main() -> None:
    """Compare each file, then write or remove those that differ."""
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "path", "default": []},
            "files": io_root_files.ENTRY,
        },
        supports_check_mode=True,
    )
    try:
        change = io_root_files.change(module.params["directories"], io_root_files.wanted(module.params["files"]))
        difference = change.difference()
        if not module.check_mode:
            change.install()
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=change.due, changed_paths=change.paths, diff=difference)


if __name__ == "__main__":
    main()
