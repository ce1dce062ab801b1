#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_build_wheel
short_description: Add a built wheel of vLLM to a host's store
version_added: 0.1.0
description:
  - Without O(file), takes the wheel of the finished build on this host, and verifies that it has code for each GPU.
  - With O(file), takes a wheel that another host sent, and verifies its hash.
  - Refuses a wheel with files outside of vLLM's package, such as a C(.pth), or with another program than C(vllm).
  - Removes the oldest builds, but none of O(used) and not that of O(runtime).
options:
  store:
    description: The store of builds on this host.
    type: path
    required: true
  name:
    description: The name of the build.
    type: str
    required: true
  stamp:
    description: The inputs of the build, or the complete stamp for O(file). Without it, a missing build is only
      reported.
    type: dict
  file:
    description: A wheel on this host.
    type: path
  capabilities:
    description: The compute capabilities that the wheel must have code for.
    type: list
    elements: str
    default: []
  keep:
    description: Number of builds to keep.
    type: int
    default: 3
  used:
    description: Names of builds to keep besides O(name), such as those for the other GPUs of the cluster.
    type: list
    elements: str
    default: []
  runtime:
    description: The environment in use. The build whose wheel it has is kept.
    type: path
seealso:
  - module: gb10.cluster.vllm_build
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Add the build to the store
  gb10.cluster.vllm_build_wheel:
    store: /opt/gb10/build
    name: 0.33.0-0123456789ab
    stamp: "{{ build.stamp }}"
    capabilities: ["12.1"]
  become: true
"""

RETURN = r"""
stamp:
  description: The stamp of the build, null if it is missing.
  returned: success
  type: dict
lines:
  description: The wheel, its GPU code, its duration and the compiler cache as text; empty if this host
    has not built it now.
  returned: success
  type: list
  elements: str
removed:
  description: The removed older builds.
  returned: success
  type: list
  elements: str
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, io_pack, io_store, parse, wheel


def receive(store: str, name: str, stamp: dict[str, str], path: str) -> None:
    """Add a wheel that another host built.

    Raises ProblemsError for a wrong stamp, another hash than the stamp's, and other files than vLLM's; OSError.
    """
    stored = parse.build(stamp)
    if stored is None:
        expected, fix = (
            "name, wheel and sha256, as vllm_build_wheel writes them",
            "remove the build on the host that built it",
        )
        raise ProblemsError([Problem("stamp", "a value is missing or has another form", expected, fix)])
    if stored.name != name:
        raise ProblemsError([Problem("stamp", f"it is that of {stored.name}", name, "run again")])
    found = io_file.sha256(path)
    if found != stored.sha256:
        raise ProblemsError([Problem("file", f"{path} has sha256 {found}", stored.sha256, "send the file again")])
    with io_store.part(store, name) as folder:
        with open(path, "rb") as file:
            packed = io_pack.pack(file.fileno(), f"{folder}/{stored.wheel}")
        if packed != stored.sha256:
            expected = "a wheel in the form that this module writes"
            raise ProblemsError(
                [Problem("file", "its form is another one", expected, "remove the build on the head, and run again")]
            )
        io_file.write_file(
            f"{folder}/{io_store.STAMP}", json.dumps(stamp, indent=2, sort_keys=True) + "\n", io_file.READABLE
        )


def add(params: Mapping[str, Any], gpus: Sequence[ComputeCapability]) -> Any:
    """Add the received or the built wheel to the store, and return its stamp there."""
    store, name = params["store"], params["name"]
    if params["file"]:
        receive(store, name, params["stamp"], params["file"])
    else:
        io_build.add(store, name, gpus, params["stamp"])
    return next(stamp for stamp in io_store.stamps(store) if stamp["name"] == name)


def main() -> None:
    """Add the wheel if it is missing, and remove old builds."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "stamp": {"type": "dict"},
            "file": {"type": "path"},
            "capabilities": {"type": "list", "elements": "str", "default": []},
            "keep": {"type": "int", "default": 3},
            "used": {"type": "list", "elements": "str", "default": []},
            "runtime": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    store, name = params["store"], params["name"]
    try:
        gpus = [
            ComputeCapability.parse(text, f"capabilities[{index}]") for index, text in enumerate(params["capabilities"])
        ]
        stamp = next((stamp for stamp in io_store.stamps(store) if stamp["name"] == name), None)
        added = stamp is None and params["stamp"] is not None
        if added and not module.check_mode:
            stamp = add(params, gpus)
        used = {name, *params["used"], *io_store.installed(store, params["runtime"])}
        removed = io_store.old(store, used, params["keep"]) if stamp else []
        if not module.check_mode:
            io_store.forget(store, removed)
    except (ProblemsError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=added or bool(removed),
        stamp=stamp,
        lines=wheel.text(stamp) if stamp and added and not params["file"] else [],
        removed=removed,
        diff={"before": "" if added else f"{name}\n", "after": f"{name}\n"},
    )


if __name__ == "__main__":
    main()
