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
  - Reads the ed25519 key of the host with ssh-keyscan, at the address and port of its variables for ssh. Logs in
    nowhere.
  - Does not fail if the machine gives no key; its C(reason) in RV(node) tells why.
  - Runs on the controller. The action plugin of this name does the work.
options:
  known_hosts:
    description: The file to compare with.
    type: path
    default: ~/.ssh/known_hosts
  timeout:
    description: Seconds to wait for the machine.
    type: int
    default: 10
seealso:
  - module: gb10.cluster.access_report
  - module: gb10.cluster.fabric_neighbors_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the host key
  gb10.cluster.host_key_info:
  register: host_key
"""

RETURN = r"""
node:
  description: The machine.
  returned: success
  type: dict
  contains:
    name:
      description: Its name in the inventory.
      type: str
    address:
      description: Its address.
      type: str
    port:
      description: The port of sshd.
      type: int
    user:
      description: The login user, empty if ssh chooses it.
      type: str
    host_key:
      description: Its host key, empty for the controller itself.
      type: dict
      contains:
        key:
          description: The type and the key, empty without one.
          type: str
          sample: ssh-ed25519 AAAA...
        fingerprint:
          description: The fingerprint that C(ssh-keygen -l) prints, empty without a key.
          type: str
        state:
          description:
            - V(stored) if known_hosts has this key, V(new) if it has none for the machine, V(changed) if it has another
              one, V(other) if it has only keys of other types; empty without a key.
          type: str
        reason:
          description: Why the key is missing, else empty.
          type: str
"""
