#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_verify_info
short_description: Read all facts of a node that the verification of a cluster compares
version_added: 0.1.0
description:
  - Reads hardware, network, runtime, ranks, services and ports of a node in one run, also on a cluster that another
    tool set up. With O(url), queries the server and requests one token.
  - A fact that does not exist or cannot be read is null or empty. RV(unread) has the reason.
  - Variables of the ranks leave the node as text only if they are on a list of names without secrets, such as
    C(NCCL_DEBUG). Others leave it as an HMAC with O(salt).
  - A node that cannot be read is a result. The action plugin returns it in RV(node), with the facts below as C(facts).
options:
  api:
    description: Where the API listens, with C(host), C(port), C(name) for clients and C(tls). The action plugin sets
      O(url), O(server_name) and O(endpoint) to what follows from it.
    type: dict
    default: {}
  head:
    description: Whether the node is a head, which has the API.
    type: bool
    default: false
  url:
    description: The API's address, without path; empty on nodes without an API.
    type: str
    default: ""
  endpoint:
    description: The API's URL for clients, a part of RV(node).
    type: str
    default: ""
  timeout:
    description: Maximum seconds to wait for the token.
    type: int
    default: 20
  install_dir:
    description: The directory that holds the runtimes.
    type: path
    default: /opt/gb10
  salt:
    description: A random key for this run, the same on all nodes; empty to leave out all variables that may be secret.
    type: str
    default: ""
  quick:
    description: Whether to leave out vLLM's log, the digests of vLLM's files and of the NCCL libraries, and the GPU
      code.
    type: bool
    default: false
  capability:
    description: The compute capability for RV(kernels), such as V(12.1); empty for that of the node's GPU.
    type: str
    default: ""
seealso:
  - module: gb10.cluster.cluster_status_info
  - module: gb10.cluster.fabric_info
  - module: gb10.cluster.nccl_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
  - gb10.cluster.api.key
"""

EXAMPLES = r"""
- name: Read the node
  gb10.cluster.cluster_verify_info:
    head: true
    api: {host: 127.0.0.1, port: 8000, name: "", tls: false}
    quick: true
  become: true
"""

RETURN = r"""
node:
  description: The node. C(unreachable) is the reason why it could not be read, or empty; then C(facts) are empty too.
  returned: success
  type: dict
  sample: {"name": "spark1", "head": true, "unreachable": "", "facts": {}, "started": 1.5, "finished": 2.5}
services:
  description: As M(gb10.cluster.cluster_status_info) returns them, and so are V(ranks), V(available), V(total),
    V(uptime), V(driver), V(links), V(error), V(lock) and V(reboot).
  returned: success
  type: list
  elements: dict
interfaces:
  description: As M(gb10.cluster.fabric_info) returns them, and so are V(rdma), V(netplan) and V(unreadable).
  returned: success
  type: dict
kernel:
  description: As M(gb10.cluster.node_info) returns it, and so are V(infiniband), V(cma_total_bytes), V(cma_free_bytes),
    V(gpu), V(listeners) and V(login_users).
  returned: success
  type: str
hostname:
  description: The host's own name, which the inventory's may differ from.
  returned: success
  type: str
gpu_state:
  description: Clocks in MHz, power in W, temperature in degrees Celsius, and utilization in percent of the first GPU.
    C(limit_mhz) is the limit of the role host_guard, and C(slowed) has the reasons for which the driver slows it down.
  returned: success
  type: dict
  sample: {"clock_mhz": 2400.0, "max_clock_mhz": 3003.0, "power_w": 11.5, "temperature_c": 48.0, "utilization": 0.0}
gpu_device:
  description: Whether a PCI device of NVIDIA exists.
  returned: success
  type: bool
temperature_c:
  description: The highest temperature of the kernel's thermal zones, null without one.
  returned: success
  type: float
boot:
  description: The newest kernel in C(/boot), and whether it has NVIDIA's modules, null if unknown.
  returned: success
  type: dict
  sample: {"kernel": "6.17.0-1031-nvidia", "nvidia": true}
adapter:
  description: The kernel's faults of the ConnectX-7 since the boot, V(power) or V(failed); empty without one.
  returned: success
  type: list
  elements: str
product:
  description: The product of the firmware's tables, empty without one. RV(bios) is the version of the BIOS.
  returned: success
  type: str
bios:
  description: The version of the BIOS, empty if unknown.
  returned: success
  type: str
firmware:
  description: The firmware's version of each RDMA device.
  returned: success
  type: dict
planned:
  description: The addresses and the MTU of each rail in the fabric's netplan file, empty without this file.
  returned: success
  type: dict
  sample: {"enp1s0f1np1": {"addresses": ["10.110.0.1/24"], "mtu": 9000}}
processes:
  description: The ranks, and other processes with at least 1 GiB of resident memory, with their unit and user.
  returned: success
  type: list
  elements: dict
rank_users:
  description: The users of the ranks.
  returned: success
  type: list
  elements: str
environments:
  description: The variables of C(cluster.env) and of each running service, or of the parent of the ranks.
  returned: success
  type: dict
  sample: {"cluster.env": {"NCCL_DEBUG": "WARN", "HF_HOME": "hmac:0123456789abcdef"}}
nccl:
  description: The processes of M(gb10.cluster.nccl_info) for the ranks, null with O(quick).
  returned: success
  type: list
  elements: dict
nccl_installed:
  description: The library that the next start of a rank loads, null if unknown or with O(quick).
  returned: success
  type: dict
cuda_libraries:
  description: The paths of the libcuda that the ranks have mapped.
  returned: success
  type: list
  elements: str
runtime:
  description: The package folder of the ranks, empty if unknown.
  returned: success
  type: str
packages:
  description: The releases of vLLM, PyTorch, Ray and related packages, null without a runtime.
  returned: success
  type: dict
files:
  description: vLLM's Python files that differ from the wheel, and those that the role vllm_patch wrote, with digests.
    Null with O(quick), and for a container.
  returned: success
  type: dict
kernels:
  description: The number of programs that the GPU runs with native code, with code of an older GPU of its generation,
    from PTX, or not at all, in each extension of the runtime; and the backends in the command line of vLLM's unit. Null
    with O(quick), without a runtime, and without a GPU and O(capability).
  returned: success
  type: dict
  sample:
    capability: "12.1"
    extensions: {"vllm/_C_stable_libtorch": {"native": 0, "same_major": 85, "ptx": 6, "none": 20}}
    chosen: {"--moe-backend": "marlin"}
evidence:
  description: The messages of each process of vLLM in the running start, and the values to compare them with. These
    are the decisions of its command line and the messages in the launch record. Only names and texts of known messages
    are returned. Null with O(quick), or if C(gb10-vllm.service) does not run.
  returned: success
  type: dict
  sample:
    planned: {"attention": "TRITON_ATTN"}
    processes:
      - {"process": "Worker_TP0", "address": "", "found": {"attention": ["TRITON_ATTN"]}}
      - {"process": "Worker_TP1", "address": "10.110.0.2", "found": {"attention": ["TRITON_ATTN"]}}
    recorded: []
    complete: true
images:
  description: The running containers with name, image, image ID and container engine.
  returned: success
  type: list
  elements: dict
disks:
  description: Free and total bytes of each file system, and the free part of its files.
  returned: success
  type: list
  elements: dict
firewalls:
  description: The names of the active firewalls, C(peer_firewall) for the table of that role.
  returned: success
  type: list
  elements: str
remove_ipc:
  description: Whether logind removes the shared memory of users at logout, null if unknown.
  returned: success
  type: bool
lingering:
  description: The users whose processes continue after logout.
  returned: success
  type: list
  elements: str
ray:
  description: Ray's nodes on the head, and whether Ray accepts requests without its token; null without Ray.
  returned: success
  type: dict
api:
  description: The server's status, whether it lists models without a key, and when its certificate expires in seconds
    since 1970; null without O(url).
  returned: success
  type: dict
unread:
  description: The facts that could not be read, with the reason.
  returned: success
  type: dict
clock:
  description: The node's time in seconds since 1970.
  returned: success
  type: float
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as common_argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server, api_key
from ansible_collections.gb10.cluster.plugins.module_utils.verify import io_facts

#: Seconds for each command: nvidia-smi or a container engine may hang on a faulty node.
_TIMEOUT = 30


def main() -> None:
    """Return the facts."""
    module = AnsibleModule(
        argument_spec={
            # Only the action uses them.
            "api": {"type": "dict", "default": {}},
            "head": {"type": "bool", "default": False},
            "url": {"type": "str", "default": ""},
            "endpoint": {"type": "str", "default": ""},
            **common_argument_spec.API,
            **common_argument_spec.API_KEY,
            "timeout": {"type": "int", "default": 20},
            "install_dir": {"type": "path", "default": "/opt/gb10"},
            "salt": {"type": "str", "default": "", "no_log": True},
            "quick": {"type": "bool", "default": False},
            "capability": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    run_all = parallel_runner(module, _TIMEOUT)
    server = Server(params["url"], params["ca_file"], params["server_name"])
    request = io_facts.Request(
        server,
        api_key(params["key_file"], params["unit"]),
        params["timeout"],
        params["install_dir"],
        params["salt"],
        params["quick"],
        params["capability"],
    )
    module.exit_json(changed=False, **io_facts.read(lambda argv: run_all([argv])[0], request))


if __name__ == "__main__":
    main()
