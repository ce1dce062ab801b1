#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_info
short_description: Read all facts of a node for the plan in one call
version_added: 0.1.0
description:
  - Reads the GPU, network hardware with the owners of its interfaces, listening ports with their systemd units, the
    model's configuration and size of weights, the kernel, the runtime's NCCL, and overrides that roles recorded.
requirements:
  - python3-yaml on the node where it has netplan files (C(netplan.io) depends on it)
options:
  model:
    description: The folder of the model to serve, if the model is a folder.
    type: path
  source:
    description: The source folder of O(model). The module reads it until O(model) is complete.
    type: path
  folders:
    description: Other folders that the model needs, such as those of LoRA adapters.
    type: list
    elements: path
    default: []
  exclude:
    description: Patterns of files that are not copied.
    type: list
    elements: str
    default: []
  runtime:
    description: The Python environment of the ranks, if it is on the node.
    type: path
  user:
    description: The user of the services.
    type: str
    default: gb10
  keep_runtimes:
    description: As for M(gb10.cluster.launch_record_info).
    type: int
    default: 2
  packages:
    description: Debian packages in apt's syntax.
    type: list
    elements: str
    default: []
  builds:
    description: The store of builds of vLLM.
    type: path
seealso:
  - module: gb10.cluster.gpu_info
  - module: gb10.cluster.fabric_info
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
  description: As M(gb10.cluster.gpu_info) returns it.
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
  description: As M(gb10.cluster.fabric_info) returns them, otherwise the files that netplan rejects.
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
      description: The bound address.
      type: str
    port:
      description: The port.
      type: int
    pid:
      description: The process ID, null if unknown.
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
  description: Bytes of the model's safetensors, from their index if it exists; null if there are none.
  returned: always
  type: int
  sample: 65248815744
model_reason:
  description: Why vLLM cannot load the weights (missing or unreadable files, or pointers of Git LFS), empty if it can.
  returned: always
  type: str
model_at:
  description: The folder that was read, empty if none was requested.
  returned: always
  type: str
model_complete:
  description: Whether O(model) is complete according to the manifest of the role model_store.
  returned: always
  type: bool
kernel:
  description: Release of the running kernel.
  returned: always
  type: str
  sample: 6.17.0-1031-nvidia
infiniband:
  description: Whether C(/dev/infiniband) exists, through which programs use RDMA.
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
toolkit:
  description: The CUDA toolkit of the node, and the other parts of a compilation.
  returned: always
  type: dict
  contains:
    home:
      description: The folder, empty without a working toolkit.
      type: str
      sample: /usr/local/cuda
    release:
      description: The release of C(nvcc).
      type: str
      sample: 13.0.88
    architectures:
      description: The GPU architectures that C(nvcc) supports.
      type: list
      elements: str
    reason:
      description: Why the toolkit does not work, empty if it works or there is none.
      type: str
    host_compiler:
      description: Whether C(g++) and the headers of Python exist.
      type: bool
clock:
  description: The time of the node in seconds since 1970.
  returned: always
  type: float
debian:
  description: The state of the Debian packages.
  returned: always
  type: dict
  contains:
    lacking:
      description: Those of O(packages) that are not installed.
      type: list
      elements: str
    holder:
      description: The process that holds a lock of apt or dpkg, with pid, process and unit; empty if none does.
      type: dict
    stale:
      description: Whether the package lists are older than a day, or missing.
      type: bool
    reboot:
      description: Whether a reboot is C(required), and the C(packages) that wait for it.
      type: dict
updates:
  description: As the step C(os_update_info) returns C(state), without pending packages and boot entries; otherwise
    the C(reason) why it cannot be read.
  returned: always
  type: dict
login_users:
  description: Root, and the users who log in, whose semaphores and shared memory logind may delete.
  returned: always
  type: list
  elements: str
nccl:
  description: The libnccl of NVIDIA's wheel in O(runtime), as M(gb10.cluster.nccl_info) returns it; null if there is no
    finished environment, empty if the environment has no such wheel.
  returned: always
  type: dict
state:
  description: The parts of the collection that are already on the node, so that roles skip them.
  returned: always
  type: dict
  contains:
    service_user:
      description: The UID and GID of O(user), joined by a colon; empty without such a user.
      type: str
      sample: "996:996"
    service_user_ready:
      description: Whether O(user) has no login shell and its own home, which is closed to others.
      type: bool
    ray_token_digest:
      description: The SHA-256 of Ray's token if the role ray_cluster generated it and only root can read it, else
        empty.
      type: str
    message_secret_digest:
      description: On the head, the SHA-256 of the generated secret of the messages between nodes if only root can read
        it, else empty.
      type: str
    message_keys_mark:
      description: The mark of the node's keys of these messages, which identifies the secret that they are derived
        from, empty without.
      type: str
    runtime_mark:
      description: The SHA-256 of the file C(.complete) of O(runtime) if the link C(current) names it, else empty.
      type: str
    units:
      description: The names of the collection's systemd unit files.
      type: list
      elements: str
    certificate:
      description: Whether files of the API's certificate exist.
      type: bool
    api_key:
      description: Whether a file with the API key exists.
      type: bool
    secret_environment:
      description: Whether the file with secret variables of the ranks exists.
      type: bool
    watchdog_webhook:
      description: Whether the file with the watchdog's webhook exists.
      type: bool
    nccl_replaced:
      description: Whether another NCCL replaces the library of O(runtime).
      type: bool
    last_good:
      description: The identifier of the last launch whose model answered, empty without a record.
      type: str
host:
  description: The protection of the host, as M(gb10.cluster.host_guard) changes it.
  returned: always
  type: dict
  contains:
    files:
      description: The texts of its files by path.
      type: dict
    values:
      description: The kernel settings that it can change, by name.
      type: dict
    former:
      description: Their values from before the first change, by name.
      type: dict
    device:
      description: Whether the host has a hardware watchdog.
      type: bool
    manager:
      description: systemd's watchdog times in microseconds, empty without a file for them.
      type: dict
    limited:
      description: Whether the unit that limits the GPU's clock is active and starts at boot.
      type: bool
installed:
  description: The files and services that the collection installed on the node, so that comparisons with the plan need
    no other connection.
  returned: always
  type: dict
  contains:
    files:
      description: SHA-256 by path, of root's files with mode 0644.
      type: dict
    folders:
      description: The paths of root's folders with mode 0755.
      type: list
      elements: str
    services:
      description: As M(gb10.cluster.systemd_unit) returns C(service), by unit.
      type: dict
    api_key:
      description: The API key as M(gb10.cluster.vllm_api_key) keeps it, without the key; empty without one.
      type: dict
    current:
      description: As M(gb10.cluster.launch_record_info) returns it.
      type: str
    settled:
      description: As M(gb10.cluster.launch_record_info) returns it.
      type: bool
    launch:
      description: As M(gb10.cluster.launch_record_info) returns it.
      type: dict
image_options:
  description: The options of C(vllm serve) in the container image that the head queried last, with C(image) and
    C(image_id), and otherwise as the step C(vllm_arguments_info) returns them; null without one.
  returned: always
  type: dict
image_pins:
  description: The images that tags are pinned to, as C(image_id) and C(digest) by tag; null without any.
  returned: always
  type: dict
vllm_build:
  description: The stamps of the builds of vLLM as C(builds), newest first; null without O(builds).
  returned: always
  type: dict
wrong_folders:
  description: The paths of O(folders) that are no folder, or that other users than root can change, and the reason.
  returned: always
  type: dict
additions:
  description: Per-node launch overrides by role, which roles recorded on this node.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.facts import io_facts


def main() -> None:
    """Return the facts."""
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "path"},
            "source": {"type": "path"},
            "folders": {"type": "list", "elements": "path", "default": []},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "runtime": {"type": "path"},
            "user": {"type": "str", "default": "gb10"},
            "keep_runtimes": {"type": "int", "default": 2},
            "packages": {"type": "list", "elements": "str", "default": []},
            "builds": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **io_facts.read(runner(module), module.params))
    except ImportError as error:
        module.fail_json(msg=missing_required_lib(f"python3-{error.name}", reason="to read netplan's files"))
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
