#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_prefer
short_description: Make every process of an environment use our NCCL
version_added: 0.1.0
description:
  - Puts a link in the place of the library that NVIDIA's wheel brought, which PyTorch finds whatever the search path says. The wheel's file is kept
    beside it with its hash, and comes back with O(state=absent).
  - Where there is no such wheel, C(LD_PRELOAD) in the environment of the ranks does it.
  - C(LD_LIBRARY_PATH) does not (PyTorch's own path comes first), and C(VLLM_NCCL_SO_PATH) moves vLLM's communicator alone; both were measured on
    two NVIDIA H200.
options:
  python:
    description: The interpreter of the environment that vLLM is installed in. It is not run.
    type: path
    required: true
  library:
    description: The library to use.
    type: path
  state:
    description: Whether O(library) should be used, or what the environment brought.
    type: str
    choices: [present, absent]
    default: present
  way:
    description: How; V(auto) takes the link where there is a wheel.
    type: str
    choices: [auto, link, preload]
    default: auto
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Use what we built
  gb10.cluster.nccl_prefer:
    python: /opt/gb10/runtime/current/bin/python
    library: /opt/gb10/nccl/2.30.7-0123456789ab/lib/libnccl.so.2
  register: preferred
  become: true
"""

RETURN = r"""
way:
  description: How it is done, V(link) or V(preload); empty if it is not.
  returned: success
  type: str
replaced:
  description: The file that is a link now, or was one; empty if there is no wheel.
  returned: success
  type: str
environment:
  description: The variables that the ranks have to be started with in addition.
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.patch.io_tree import NCCL, Tree
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Link, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_package as io_vllm_package


def main() -> None:
    """Look what there is, and link or unlink."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "library": {"type": "path"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "way": {"type": "str", "choices": ["auto", "link", "preload"], "default": "auto"},
        },
        required_if=[("state", "present", ["library"])],
        supports_check_mode=True,
    )
    params = module.params
    try:
        package = io_vllm_package.find(None, params["python"])
        with io_vllm_package.locked(package):
            tree = Tree(package.path)
            wheel = tree.exists(NCCL)
            way = "" if params["state"] == "absent" else params["way"] if params["way"] != "auto" else "link" if wheel else "preload"
            if way == "link" and not wheel:
                found = f"there is no {os.path.normpath(f'{package.path}/{NCCL}')}"
                raise ProblemsError([Problem("way", found, "NVIDIA's wheel of NCCL in the environment", "choose auto or preload")])
            wanted: dict[str, Wanted] = {NCCL: Link(params["library"]) if way == "link" else None} if wheel else {}
            changes = tree.changes(wanted)
            texts = [tree.texts(path, content) for path, content in changes.items()]
            tree.check(changes)
            if not module.check_mode:
                tree.write(changes)
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(changes),
        way=way,
        replaced=os.path.normpath(f"{package.path}/{NCCL}") if wheel else "",
        environment={"LD_PRELOAD": params["library"]} if way == "preload" else {},
        diff=[{"before_header": path, "after_header": path, "before": before, "after": after} for path, before, after in texts],
    )


if __name__ == "__main__":
    main()
