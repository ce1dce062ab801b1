#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_key_info
short_description: Read the SSH host key of a machine, and compare it with known_hosts
version_added: 0.1.0
description:
  - Runs on the controller. Reads the ed25519 key with ssh-keyscan, and logs in nowhere.
  - Does not fail if the machine gives no key; RV(reason) has the reason.
options:
  address:
    description: The address or name of the machine.
    type: str
    required: true
  port:
    description: The port of sshd.
    type: int
    default: 22
  known_hosts:
    description: The file to compare with.
    type: path
    default: ~/.ssh/known_hosts
  timeout:
    description: Seconds to wait for the machine.
    type: int
    default: 10
seealso:
  - module: gb10.cluster.fabric_neighbors_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the host key
  gb10.cluster.host_key_info:
    address: 192.168.1.11
  delegate_to: localhost
  register: host_key
"""

RETURN = r"""
key:
  description: The type and the key, empty without one.
  returned: success
  type: str
  sample: ssh-ed25519 AAAA...
fingerprint:
  description: The fingerprint that C(ssh-keygen -l) prints, empty without a key.
  returned: success
  type: str
state:
  description:
    - V(stored) if known_hosts has this key, V(new) if it has none for the machine, V(changed) if it has another one,
      V(other) if it has only keys of other types; empty without a key.
  returned: success
  type: str
reason:
  description: Why there is no key, else empty.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.access import io_host_key
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner


def main() -> None:
    """Return the host key."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "port": {"type": "int", "default": 22},
            "known_hosts": {"type": "path", "default": "~/.ssh/known_hosts"},
            "timeout": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    given = module.params
    found = io_host_key.read(runner(module), given["address"], given["port"], given["known_hosts"], given["timeout"])
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
