#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_select
short_description: Make all processes of an environment use a built NCCL
version_added: 0.1.0
description:
  - Replaces the library of NVIDIA's wheel with a link, because PyTorch loads it independent of the search path. The
    wheel's file is kept in the same folder with its hash. O(state=absent) restores it.
  - Without such a wheel, sets C(LD_PRELOAD) in the environment of the ranks.
  - C(LD_LIBRARY_PATH) has no effect (PyTorch's own path comes first), and C(VLLM_NCCL_SO_PATH) changes only vLLM's
    communicator. Both were measured on two NVIDIA H200.
options:
  python:
    description: The interpreter of vLLM's environment. It is not run.
    type: path
    required: true
  library:
    description: The library to use.
    type: path
  state:
    description: Whether to use O(library), or the environment's own library.
    type: str
    choices: [present, absent]
    default: present
  method:
    description: The method. V(auto) uses the link if there is a wheel.
    type: str
    choices: [auto, link, preload]
    default: auto
seealso:
  - module: gb10.cluster.nccl_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Use the built NCCL
  gb10.cluster.nccl_select:
    python: /opt/gb10/runtime/current/bin/python
    library: /opt/gb10/nccl/2.30.7-0123456789ab/lib/libnccl.so.2
  register: preferred
  become: true
"""

RETURN = r"""
method:
  description: The method, V(link) or V(preload); empty with O(state=absent).
  returned: success
  type: str
replaced:
  description: The wheel's file, which the link replaces; empty without a wheel.
  returned: success
  type: str
environment:
  description: Additional environment variables of the ranks.
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.patch.io_tree import NCCL, Tree
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Link, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_package


def main() -> None:
    """Link or restore the library."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "library": {"type": "path"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "method": {"type": "str", "choices": ["auto", "link", "preload"], "default": "auto"},
        },
        required_if=[("state", "present", ["library"])],
        supports_check_mode=True,
    )
    params = module.params
    try:
        package = io_package.find(None, params["python"])
        with io_package.locked(package):
            tree = Tree(package.path)
            wheel = tree.exists(NCCL)
            method = (
                ""
                if params["state"] == "absent"
                else params["method"]
                if params["method"] != "auto"
                else "link"
                if wheel
                else "preload"
            )
            if method == "link" and not wheel:
                found = f"{os.path.normpath(f'{package.path}/{NCCL}')} not found"
                expected = "NVIDIA's wheel of NCCL in the environment"
                raise ProblemsError([Problem("method", found, expected, "set auto or preload")])
            wanted: dict[str, Wanted] = {NCCL: Link(params["library"]) if method == "link" else None} if wheel else {}
            texts = tree.apply(wanted, module.check_mode)
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(texts),
        method=method,
        replaced=os.path.normpath(f"{package.path}/{NCCL}") if wheel else "",
        environment={"LD_PRELOAD": params["library"]} if method == "preload" else {},
        diff=[
            {"before_header": path, "after_header": path, "before": before, "after": after}
            for path, before, after in texts.values()
        ],
    )


if __name__ == "__main__":
    main()
