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
  - A program that imports other files of this collection becomes one file, which Python runs. It replaces a folder in
    which an earlier release installed that program. The difference shows its sources.
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
    required: true
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
  - module: gb10.cluster.systemd_unit_info
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

import os
import shutil

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, program

_FILE = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str"},
    "program": {"type": "str"},
    "packed": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def main() -> None:
    """Compare each file, then write or remove those that differ."""
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "path", "default": []},
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": _FILE,
                "mutually_exclusive": [("content", "program", "packed")],
                "required_if": [("state", "present", ["content", "packed"], True)],
            },
        },
        supports_check_mode=True,
    )
    wanted = {
        entry["path"]: None if entry["state"] == "absent" else program.content(entry)
        for entry in module.params["files"]
    }
    try:
        folders = [path for path in module.params["directories"] if not io_file.installed_folder(path)]
        files = {path: content for path, content in wanted.items() if io_file.differs(path, content)}
        diff = [_difference(path, "", "folder, mode 0755\n") for path in folders]
        diff += [each for path, content in files.items() for each in _differences(path, content)]
        if not module.check_mode:
            _install(folders, files)
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(folders or files), changed_paths=[*folders, *files], diff=diff)


def _differences(path: str, content: str | bytes | None) -> list[dict[str, str]]:
    """Return the difference of a file, or those of the changed sources of a packed program."""
    if not isinstance(content, bytes):
        return [_difference(path, _before(path), content or "")]
    before, after = _sources(path), program.sources(content)
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return [_difference(f"{path}/{name}", before.get(name, ""), after.get(name, "")) for name in names]


def _sources(path: str) -> dict[str, str]:
    """Return name -> text of an installed program's files, {} if there is none."""
    if _former(path):
        found = [
            f"{folder}/{name}" for folder, _folders, names in os.walk(path) for name in names if name.endswith(".py")
        ]
        return {os.path.relpath(file, path): _before(file) for file in found}
    if not os.path.isfile(path) or os.path.islink(path):
        return {}
    with open(path, "rb") as file:
        return program.sources(file.read())


def _former(path: str) -> bool:
    """Return whether an earlier release's folder of a program is in the place of its file."""
    return os.path.isdir(path) and not os.path.islink(path) and program.FORMER.issuperset(os.listdir(path))


def _before(path: str) -> str:
    """Return the text of a file. The difference must not show the target of a link."""
    return io_file.read_file(path)[0] or "" if os.path.isfile(path) and not os.path.islink(path) else ""


def _difference(path: str, before: str, after: str) -> dict[str, str]:
    return {"before_header": path, "after_header": path, "before": before, "after": after}


def _install(folders: list[str], files: dict[str, str | bytes | None]) -> None:
    for path in folders:
        io_file.install_folder(path)
    for path, content in files.items():
        if isinstance(content, bytes) and _former(path):
            shutil.rmtree(path)
        io_file.install(path, content)


if __name__ == "__main__":
    main()
