#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_build_info
short_description: Read the vLLM builds of a host, its published wheel, and the progress of a build
version_added: 0.1.0
description:
  - Returns the stamps of the builds in the store. With O(name), also the progress of that build.
  - With O(runtime), also the GPU code in the extensions of that environment, for this host's GPU. It is read from the
    files, so that no GPU is needed.
options:
  store:
    description: The store of builds on this host.
    type: path
    required: true
  runtime:
    description: The environment with the published wheel.
    type: path
  name:
    description: The name of a build.
    type: str
    default: ''
seealso:
  - module: gb10.cluster.vllm_build
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the builds of vLLM
  gb10.cluster.vllm_build_info:
    store: /opt/gb10/build
    runtime: /opt/gb10/runtime/0123456789ab
  become: true
  register: builds
"""

RETURN = r"""
builds:
  description: The stamp of each build, newest first.
  returned: success
  type: list
  elements: dict
capability:
  description: The compute capability of this host's GPU, empty if unknown or without O(runtime).
  returned: success
  type: str
published:
  description: The coverage of each extension of O(runtime) for this host's GPU (native, same_major, ptx and none); null
    without a finished environment, empty without a GPU.
  returned: success
  type: dict
cores:
  description: Number of CPU cores.
  returned: success
  type: int
memory:
  description: Free memory in bytes.
  returned: success
  type: int
progress:
  description: The progress of O(name), with C(state) (none, running, finished or failed), C(line) and C(reason).
  returned: success
  type: dict
"""

import dataclasses
import glob
import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import available_memory
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_coverage
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, io_store


def main() -> None:
    """Return the facts."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "runtime": {"type": "path"},
            "name": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    run, params = runner(module), module.params
    capability, published, found = "", None, None
    try:
        if params["runtime"]:
            capability = next((gpu["capability"] for gpu in node_io_facts.gpu(run)["gpus"] if gpu["capability"]), "")
        if params["runtime"] and os.path.isfile(f"{params['runtime']}/.complete"):
            sites = glob.glob(f"{glob.escape(params['runtime'])}/lib/python3*/site-packages")
            published = io_coverage.read(sites[0], ComputeCapability.parse(capability)) if capability and sites else {}
        if params["name"]:
            found = io_build.read(run, f"{params['store']}/build.log", params["name"])
        builds = io_store.stamps(params["store"])
    except (ProblemsError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        builds=builds,
        capability=capability,
        published=published,
        cores=len(os.sched_getaffinity(0)),
        memory=available_memory(io_file.read("/proc/meminfo")),
        progress=dataclasses.asdict(found) if found else {},
    )


if __name__ == "__main__":
    main()
