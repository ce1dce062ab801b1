#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_build
short_description: Build NCCL once for the GPUs of a cluster
version_added: 0.1.0
description:
  - Builds NCCL on this host, in a folder named after all inputs of the build. An existing build from the same inputs is
    reused, and an interrupted build is continued.
  - Removes a library that lacks code for one of the GPUs.
  - Without O(source), only checks the prerequisites of a build. In check mode, required programs are not checked,
    because their packages may not be installed yet.
options:
  store:
    description: The store of NCCL builds on this host.
    type: path
    required: true
  source:
    description: The source tree of an NCCL release on this host.
    type: path
  identity:
    description: Exact identity of the source, such as the hash of its archive. By default the git commit.
    type: str
  commit:
    description: The required commit of the source, 40 hexadecimal digits. Ignored with O(identity).
    type: str
  planned:
    description: Whether the action plugin only returns the options of the build for the fact C(gb10_plan) and the
      variables of the role. It verifies a source on the controller, and the node is not touched.
    type: bool
    default: false
  built:
    description: The variable of the head with the registered result of this module. If set, the action plugin returns
      how this node uses the build, and the node is not touched.
    type: str
    default: ""
  wanted:
    description: Whether NCCL is built, for O(built).
    type: bool
    default: false
  capabilities:
    description: The compute capabilities to build for.
    type: list
    elements: str
    required: true
  cuda_home:
    description: The folder of the CUDA toolkit. By default the usual folders are searched.
    type: path
  functions:
    description: NCCL's C(ONLY_FUNCS). An excluded function does nothing when called, without an error.
    type: str
    default: ''
  from_git:
    description: Without O(source), whether the source will be fetched with git.
    type: bool
    default: false
  patches:
    description:
      - Patches in git's format for a copy of O(source), in this order. Patches of this collection that do not fit the
        release lead to a warning, and others to a failure.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name.
        type: str
        required: true
      text:
        description: The content.
        type: str
        required: true
  ccache:
    description: Whether to cache compiler output with C(ccache), which must be installed.
    type: bool
    default: false
  pack:
    description: A file to pack the build into, for other hosts. Packing alone does not count as a change.
    type: path
seealso:
  - module: gb10.cluster.nccl_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Build NCCL for DGX Sparks
  gb10.cluster.nccl_build:
    store: /opt/gb10/nccl
    source: /opt/gb10/nccl/source
    capabilities: ["12.1"]
  become: true
"""

RETURN = r"""
archive:
  description: Whether the source is a tar file on the controller.
  returned: with O(planned)
  type: bool
options:
  description: The options of this module for the build.
  returned: with O(planned)
  type: dict
requirements:
  description: The options of this module for the check of the prerequisites.
  returned: with O(planned)
  type: dict
there:
  description: Whether there is a build to use.
  returned: with O(built)
  type: bool
install:
  description: The inputs of the step C(nccl_install) on this node.
  returned: with O(built)
  type: dict
select:
  description: The options of M(gb10.cluster.nccl_select) on this node.
  returned: with O(built)
  type: dict
environment:
  description: The variables of this node's ranks, if they do not use M(gb10.cluster.nccl_select).
  returned: with O(built)
  type: dict
files:
  description: The SHA-256 of the library by its path.
  returned: with O(built)
  type: dict
mounts:
  description: The mounts of this node's containers.
  returned: with O(built)
  type: list
  elements: dict
name:
  description: The build's folder name in the store, empty without O(source).
  returned: success
  type: str
  sample: 2.30.7-0123456789ab
stamp:
  description: The inputs that determine the result.
  returned: success
  type: dict
jobs:
  description: Number of parallel compilers.
  returned: success
  type: int
sha256:
  description: SHA-256 of the library, null in check mode before it is built.
  returned: success
  type: str
packed_sha256:
  description: SHA-256 of O(pack), null without O(pack).
  returned: success
  type: str
findings:
  description: Warnings about the release.
  returned: success
  type: list
  elements: str
"""

import dataclasses

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import build as nccl_build
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_build as nccl_io_build
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store as nccl_io_store
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability


def main() -> None:
    """Build the library if it is not in the store."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "source": {"type": "path"},
            "identity": {"type": "str"},
            "commit": {"type": "str"},
            "planned": {"type": "bool", "default": False},
            "built": {"type": "str", "default": ""},
            "wanted": {"type": "bool", "default": False},
            "capabilities": {"type": "list", "elements": "str", "required": True},
            "cuda_home": {"type": "path"},
            "functions": {"type": "str", "default": ""},
            "from_git": {"type": "bool", "default": False},
            "patches": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"type": "str", "required": True}, "text": {"type": "str", "required": True}},
            },
            "ccache": {"type": "bool", "default": False},
            "pack": {"type": "path"},
        },
        supports_check_mode=True,
    )
    run, params = runner(module), module.params
    store = params["store"]
    try:
        gpus = [
            ComputeCapability.parse(text, f"capabilities[{index}]") for index, text in enumerate(params["capabilities"])
        ]
        toolkit, builder = io_toolkit.find(run, params["cuda_home"]), nccl_io_build.builder(store)
        if module.check_mode:
            builder = dataclasses.replace(builder, programs=frozenset(nccl_build.PROGRAMS) | frozenset(nccl_build.GIT))
        if params["source"] is None:
            refuse(nccl_build.prerequisites(gpus, toolkit, builder, params["functions"], params["from_git"]))
            module.exit_json(changed=False, name="", stamp={}, jobs=0, sha256=None, packed_sha256=None, findings=[])
        source = nccl_io_build.source(run, params["source"], params["identity"], params["commit"])
        source, patches, unfit = nccl_io_build.patched(run, source, params["patches"], module.check_mode)
        plan = nccl_build.plan(source, gpus, toolkit, builder, params["functions"], patches)
        there = nccl_io_store.stamp(store, plan.name)
        if there is None:
            refuse(nccl_build.prerequisites(gpus, toolkit, builder, params["functions"], bool(params["patches"])))
            if not module.check_mode:
                made = nccl_io_build.make(run, plan, source, toolkit, store, params["ccache"])
                nccl_io_build.add(plan, made, gpus, store)
        stamp = there or nccl_io_store.stamp(store, plan.name)
        packed = (
            nccl_io_store.pack(store, plan.name, params["pack"])
            if params["pack"] and stamp and not module.check_mode
            else None
        )
    except (ProblemsError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=there is None,
        name=plan.name,
        stamp=plan.stamp,
        jobs=plan.jobs,
        sha256=stamp["sha256"] if stamp else None,
        packed_sha256=packed,
        findings=[str(finding) for finding in (*plan.findings, *unfit)],
        diff={"before": "" if there is None else f"{plan.name}\n", "after": f"{plan.name}\n"},
    )


if __name__ == "__main__":
    main()
