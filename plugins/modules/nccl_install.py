#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_install
short_description: Install a built NCCL into a host's store, and make it current
version_added: 0.1.0
description:
  - Unpacks a build that M(gb10.cluster.nccl_build) packed on another host, after verifying its hash, and points
    C(current) at it.
  - Rejects a library without code for this host's GPUs. Keeps some older builds for a rollback.
options:
  store:
    description: The store of NCCL builds on this host.
    type: path
    required: true
  name:
    description: The name of the build.
    type: str
    required: true
  sha256:
    description: SHA-256 of its library.
    type: str
    required: true
  capabilities:
    description: The compute capabilities of this host's GPUs.
    type: list
    elements: str
    required: true
  artifact:
    description: The packed build on this host. Without it, a missing build is only reported in RV(missing).
    type: path
  artifact_sha256:
    description: SHA-256 of O(artifact).
    type: str
  keep:
    description: Number of builds to keep, including the current one.
    type: int
    default: 3
seealso:
  - module: gb10.cluster.nccl_build
  - module: gb10.cluster.nccl_select
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Install the build of the head
  gb10.cluster.nccl_install:
    store: /opt/gb10/nccl
    name: "{{ build.name }}"
    sha256: "{{ build.sha256 }}"
    capabilities: ["12.1"]
    artifact: /var/tmp/nccl.tar
    artifact_sha256: "{{ build.packed_sha256 }}"
  become: true
"""

RETURN = r"""
missing:
  description: Whether the build is not in the store and could not be installed.
  returned: success
  type: bool
library:
  description: The library's path, null if the build is missing.
  returned: success
  type: str
removed:
  description: The removed older builds.
  returned: success
  type: list
  elements: str
"""

import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store as nccl_io_store
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check(path: str, name: str, found: str, sha256: str, gpus: list[ComputeCapability]) -> None:
    """Raise ProblemsError unless the library's hash (``found``) is ``sha256`` and it has code for these GPUs."""
    problems = nccl_library.problems(io_library.library(path), f"libnccl {name}", gpus, os.uname().machine)
    if found != sha256:
        problems.insert(
            0, Problem(f"libnccl {name}", f"it has sha256 {found}", sha256, "build it again, or correct sha256")
        )
    if problems:
        raise ProblemsError(problems)


def main() -> None:
    """Unpack a missing build, check it, make it current, and remove the oldest builds."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "capabilities": {"type": "list", "elements": "str", "required": True},
            "artifact": {"type": "path"},
            "artifact_sha256": {"type": "str"},
            "keep": {"type": "int", "default": 3},
        },
        required_together=[("artifact", "artifact_sha256")],
        supports_check_mode=True,
    )
    params = module.params
    store, name = params["store"], params["name"]
    library = f"{store}/{name}/{nccl_io_store.LIBRARY}"
    try:
        refuse(list(_wrong(params)))
        gpus = [
            ComputeCapability.parse(text, f"capabilities[{index}]") for index, text in enumerate(params["capabilities"])
        ]
        stamp = nccl_io_store.stamp(store, name)
        there = stamp is not None and stamp["sha256"] == params["sha256"]
        if there:
            check(library, name, params["sha256"], params["sha256"], gpus)
        elif not params["artifact"]:
            module.exit_json(changed=False, missing=True, library=None, removed=[])
        elif not module.check_mode:
            unpack(params, gpus)
        used = nccl_io_store.current(store)
        older = [each for each in nccl_io_store.names(store) if each not in (name, used)]
        # Keep the build used until now too: running ranks still have it mapped.
        removed = older[max(0, params["keep"] - len({name, used} - {None})) :]
        if not module.check_mode:
            make_current(store, name, used, removed)
    except (ProblemsError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=not there or used != name or bool(removed),
        missing=False,
        library=library,
        removed=removed,
        diff={"before": f"current: {used}\n", "after": f"current: {name}\n"},
    )


def _wrong(params: dict[str, Any]) -> Iterator[Problem]:
    """Yield the options of another form: the head's results become paths on every node."""
    for name, form in (("name", _NAME), ("sha256", _SHA256), ("artifact_sha256", _SHA256)):
        if params[name] is not None and not form.fullmatch(params[name]):
            yield Problem(
                name,
                repr(params[name][:100]),
                "a build of nccl_build",
                "build NCCL again, and examine the head if it returns",
            )


def unpack(params: dict[str, Any], gpus: list[ComputeCapability]) -> None:
    """Add the artifact's build to the store if it is valid. Raises ProblemsError, OSError or ValueError."""
    store, name = params["store"], params["name"]
    os.makedirs(store, mode=0o755, exist_ok=True)
    with nccl_io_store.part(store, name) as part:
        nccl_io_store.unpack(params["artifact"], params["artifact_sha256"], part)
        made = f"{part}/{nccl_io_store.LIBRARY}"
        check(made, name, io_file.sha256(made), params["sha256"], gpus)


def make_current(store: str, name: str, used: str | None, removed: list[str]) -> None:
    """Switch from the build ``used`` to ``name``, then remove old builds. Raises OSError."""
    if used != name:
        nccl_io_store.use(store, name)
    for each in removed:
        shutil.rmtree(f"{store}/{each}")


if __name__ == "__main__":
    main()
