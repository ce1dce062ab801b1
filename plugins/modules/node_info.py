#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_info
short_description: Read what preflight must know of a node, in one call
version_added: 0.1.0
description:
  - Reads GPU, network hardware and who configures it, listening ports with the systemd unit that owns them, the
    model's configuration and the size of its weights, the kernel, the NCCL of the runtime, and what roles recorded here.
requirements:
  - python3-yaml on the node where it has netplan files (C(netplan.io) depends on it)
options:
  model:
    description: The folder of the model to be served, if it is one.
    type: path
  source:
    description: The folder that O(model) is copied from, which is read until that is complete.
    type: path
  exclude:
    description: Patterns of files that are not copied.
    type: list
    elements: str
    default: []
  runtime:
    description: The environment of Python that the ranks run in, if it is one of the node's own.
    type: path
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the node
  gb10.cluster.node_info:
    model: /srv/models/tiny
  become: true
  register: node
"""

RETURN = r"""
gpu:
  description: What M(gb10.cluster.gpu_info) returns.
  returned: always
  type: dict
interfaces:
  description: As M(gb10.cluster.fabric_info) returns them.
  returned: always
  type: dict
rdma:
  description: As M(gb10.cluster.fabric_info) returns them.
  returned: always
  type: dict
netplan:
  description: As M(gb10.cluster.fabric_info) returns them.
  returned: always
  type: list
  elements: str
unreadable:
  description: As M(gb10.cluster.fabric_info) returns them.
  returned: always
  type: list
  elements: dict
listeners:
  description: Listening TCP sockets.
  returned: always
  type: list
  elements: dict
  contains:
    address:
      description: The address that is bound.
      type: str
    port:
      description: The port.
      type: int
    pid:
      description: The process, null if it cannot be seen.
      type: int
    process:
      description: The process's name.
      type: str
    unit:
      description: The systemd service it belongs to, empty if none.
      type: str
model:
  description: The C(config.json) of the model, null if there is none.
  returned: always
  type: dict
model_bytes:
  description: Bytes of the model's safetensors, as their index says if there is one; null if there are none.
  returned: always
  type: int
  sample: 65248815744
model_reason:
  description: What is wrong with the model's weights (files missing, or of another size than the index says), empty if nothing.
  returned: always
  type: str
model_at:
  description: The folder that was read, empty if none was to be.
  returned: always
  type: str
model_complete:
  description: Whether O(model) is complete by the manifest that the role model_store writes.
  returned: always
  type: bool
kernel:
  description: Release of the running kernel.
  returned: always
  type: str
  sample: 6.17.0-1031-nvidia
infiniband:
  description: Whether there is a C(/dev/infiniband), through which programs use RDMA.
  returned: always
  type: bool
cma_total_bytes:
  description: C(CmaTotal) of C(/proc/meminfo), null if the kernel has no CMA.
  returned: always
  type: int
cma_free_bytes:
  description: C(CmaFree) of C(/proc/meminfo), null if the kernel has no CMA.
  returned: always
  type: int
login_users:
  description: Root, and the users who log in, whose semaphores and shared memory logind may delete.
  returned: always
  type: list
  elements: str
nccl:
  description: What the libnccl of NVIDIA's wheel in O(runtime) is, as M(gb10.cluster.nccl_info) says it; null where there is no finished
    environment, empty where it has none.
  returned: always
  type: dict
additions:
  description: By role, what it found out here that changes how the ranks are started.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as io_fabric
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_overrides as io_additions
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_model
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library as io_nccl
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node


def main() -> None:
    """Read and return."""
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "path"},
            "source": {"type": "path"},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "runtime": {"type": "path"},
        },
        supports_check_mode=True,
    )
    run, folder, source = runner(module), module.params["model"], module.params["source"] or ""
    try:
        module.exit_json(
            changed=False,
            gpu=io_node.gpu(run),
            **io_fabric.read(run),
            listeners=io_node.listeners(),
            **(io_model.planned_model(folder, source, module.params["exclude"]) if folder else io_model.NO_MODEL),
            **io_node.system(),
            nccl=io_nccl.bundled_facts(module.params["runtime"]) if module.params["runtime"] else None,
            login_users=io_node.login_users(),
            additions=io_additions.recorded_additions(),
        )
    except ImportError as error:
        module.fail_json(msg=missing_required_lib(f"python3-{error.name}", reason="to read netplan's files"))
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
