#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gateway_key
short_description: Create or revoke the key of a client of the gateway, or the key of the host itself
version_added: 0.1.0
description:
  - Stores the SHA-256 of each key in a file that the gateway reads again when it changes, so that no restart is needed.
  - Neither the difference nor a message contains a key. The result of a creation does, so its task needs C(no_log).
options:
  name:
    description: The client. Empty for the key of the host, which is created once and kept.
    type: str
    default: ""
  state:
    description: Whether to create the client's key, or to revoke it.
    type: str
    choices: [present, absent]
    default: present
  models:
    description: The models that the client may use; empty for all.
    type: list
    elements: str
    default: []
  clients_file:
    description: The file with the clients, which root owns.
    type: path
    default: /etc/gb10/gateway/clients.json
  operator_file:
    description: The file with the key of the host, which only root can read.
    type: path
    default: /etc/gb10/gateway/operator.key
  group:
    description: The group that may read O(clients_file).
    type: str
    default: gb10-gateway
seealso:
  - module: gb10.cluster.vllm_api_key
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Create a key
  gb10.cluster.gateway_key:
    name: alice
  become: true
  register: created
  no_log: true
"""

RETURN = r"""
key:
  description: The new key of a client; empty in check mode, and for the key of the host.
  returned: always
  type: str
"""

import dataclasses
import grp
import os
import secrets
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, schema

_MODE = 0o640
_KEY_MODE = 0o600


def main() -> None:
    """Read, change and write the file."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "models": {"type": "list", "elements": "str", "default": []},
            "clients_file": {"type": "path", "default": schema.CLIENTS},
            "operator_file": {"type": "path", "default": schema.OPERATOR_KEY},
            "group": {"type": "str", "default": paths.GATEWAY_USER},
        },
        supports_check_mode=True,
    )
    name, path = module.params["name"], module.params["clients_file"]
    key = f"{clients.PREFIX}{secrets.token_urlsafe(32)}"
    try:
        # Until the module ends, so that no other run changes the file meanwhile.
        _lock(path)
        before = clients.parse(io_file.read_bounded(path, clients.MOST))
        if not name:
            key = _operator(module, key)
            after = dataclasses.replace(before, operator=clients.digest(key))
        elif module.params["state"] == "present":
            after = clients.create(before, name, key, int(time.time()), module.params["models"])
        else:
            after = clients.revoke(before, name)
        changed = _write(module, path, clients.text(after))
    except (ValueError, OSError, KeyError) as error:
        module.fail_json(msg=f"{path}: {error}")
    created = name and module.params["state"] == "present" and not module.check_mode
    diff = {
        "before": "".join(f"{client}\n" for client in before.clients),
        "after": "".join(f"{client}\n" for client in after.clients),
    }
    module.exit_json(changed=changed, key=key if created else "", diff=diff)


def _lock(path: str) -> None:
    """Lock the file's folder. In check mode on a fresh host it does not exist."""
    if os.path.isdir(os.path.dirname(path)):
        io_file.lock(os.path.dirname(path))


def _operator(module: AnsibleModule, key: str) -> str:
    """Return the host's key, written first if it is missing or others could read it."""
    path = module.params["operator_file"]
    found, mode = io_file.read_file(path)
    kept = (found or "").strip() or key
    if (found, mode) != (f"{kept}\n", _KEY_MODE) and not module.check_mode:
        io_file.write_file(path, f"{kept}\n", _KEY_MODE, (os.geteuid(), os.getegid()))
    return kept


def _write(module: AnsibleModule, path: str, text: str) -> bool:
    """Write the clients' file if it differs. In check mode on a fresh host the group does not exist."""
    if module.check_mode:
        return io_file.read_file(path) != (text, _MODE)
    owner = (os.geteuid(), grp.getgrnam(module.params["group"]).gr_gid)
    found = io_file.owned(path)
    if io_file.read_file(path) == (text, _MODE) and found is not None and found[1:] == owner:
        return False
    io_file.write_file(path, text, _MODE, owner)
    return True


if __name__ == "__main__":
    main()
