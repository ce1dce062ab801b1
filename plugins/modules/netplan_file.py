#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: netplan_file
short_description: Write one netplan file that netplan accepts together with the others
version_added: 0.1.0
description:
  - Copies C(/etc/netplan) into a scratch root, puts the new file beside the others and runs C(netplan generate) there. Only
    what netplan accepts is written, with mode 0600, atomically. It is not applied.
options:
  path:
    description: The file, below C(/etc/netplan).
    type: path
    required: true
  content:
    description: The netplan document as YAML text.
    type: str
    required: true
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Write the fabric's netplan
  gb10.cluster.netplan_file:
    path: /etc/netplan/60-gb10-qsfp.yaml
    content: "{{ gb10_plan.node.netplan | to_nice_yaml }}"
  become: true
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
"""

import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.io_file import read_file, write_file
from ansible_collections.gb10.cluster.plugins.module_utils.io_node import Run

MODE = 0o600


def refusal(run: Run, path: str, content: str, scratch: str) -> str:
    """Return what netplan says against the file among the host's others, "" if it accepts it."""
    folder = os.path.join(scratch, "etc/netplan")
    os.makedirs(folder)
    for name in os.listdir("/etc/netplan"):
        if name.endswith(".yaml"):
            shutil.copy2(os.path.join("/etc/netplan", name), folder)
    write_file(os.path.join(folder, os.path.basename(path)), content, MODE)
    status, stdout, stderr = run(["netplan", "generate", "--root-dir", scratch])
    return "" if status == 0 else (stderr or stdout).strip().replace(scratch, "")


def main() -> None:
    """Compare, validate, write."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "content": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    path, content = module.params["path"], module.params["content"]
    if os.path.dirname(path) != "/etc/netplan" or not path.endswith(".yaml"):
        module.fail_json(msg=f"path: {path} is not read by netplan. Expected: a .yaml file in /etc/netplan.")
    try:
        before, mode = read_file(path)
        changed = (before, mode) != (content, MODE)
        if changed:
            with tempfile.TemporaryDirectory(prefix="gb10-netplan-") as scratch:
                said = refusal(runner(module), path, content, scratch)
            if said:
                module.fail_json(msg=f"netplan refuses {path}, which was not written: {said}")
            if not module.check_mode:
                write_file(path, content, MODE)
    except OSError as error:
        module.fail_json(msg=f"{path}: {error}")
    module.exit_json(changed=changed, path=path, diff={"before": before or "", "after": content, "before_header": path, "after_header": path})


if __name__ == "__main__":
    main()
