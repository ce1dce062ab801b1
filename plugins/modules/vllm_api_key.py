#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_api_key
short_description: Manage the API key on the head and in the environment file of the server's unit
version_added: 0.1.0
description:
  - Generates a 256-bit key if none exists and none is given. A generated key never leaves the host.
  - Root owns both files, with mode 0600. Neither the result nor the diff contains the key.
options:
  state:
    description: Whether the API has a key.
    type: str
    choices: [present, absent]
    default: present
  key:
    description: The key. If empty, the existing key is kept, or a new one is generated.
    type: str
    default: ""
  environment:
    description: The environment of all ranks of the node. The server's own variables extend some of these.
    type: dict
    default: {}
  planned:
    description: Whether the action plugin sets O(state) and O(environment) from C(gb10_plan).
    type: bool
    default: false
  key_file:
    description: File with the key on one line.
    type: path
    default: /etc/gb10/api.key
  environment_file:
    description: File with the environment variables of the server's unit, for systemd.
    type: path
    default: /etc/gb10/api.env
seealso:
  - module: gb10.cluster.vllm_smoke_test
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Create the API key
  gb10.cluster.vllm_api_key:
    planned: true
  become: true

- name: Remove the API key
  gb10.cluster.vllm_api_key:
    state: absent
  become: true
"""

RETURN = r"""
version:
  description: Changes with the key but reveals nothing about it, so launch inputs may contain it. Empty without a key.
  returned: always
  type: str
  sample: "1795198719123456789"
"""

import contextlib
import os
import secrets

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_local, paths, systemd

_MODE = 0o600


def main() -> None:
    """Compare, generate and write."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "key": {"type": "str", "default": "", "no_log": True},
            "environment": {"type": "dict", "default": {}},
            "planned": {"type": "bool", "default": False},
            "key_file": {"type": "path", "default": paths.API_KEY[0], "no_log": False},
            "environment_file": {"type": "path", "default": paths.API_KEY[1]},
        },
        supports_check_mode=True,
    )
    key_file = module.params["key_file"]
    try:
        wanted = contents(module)
        differing = [
            path for path, text in wanted.items() if io_file.read_file(path) != (text, None if text is None else _MODE)
        ]
        # The version is the file's time, so write only new content.
        fresh = wanted[key_file] != io_file.read_file(key_file)[0]
        if not module.check_mode:
            write(wanted, differing, keep="" if fresh else key_file)
        version = (
            ""
            if module.params["state"] == "absent"
            else "new"
            if fresh and module.check_mode
            else str(os.stat(key_file).st_mtime_ns)
        )
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    summary = "".join(
        f"{path}: {'no such file' if wanted[path] is None else 'only root can read it'}\n" for path in differing
    )
    module.exit_json(changed=bool(differing), version=version, diff={"before": "", "after": summary})


def contents(module: AnsibleModule) -> dict[str, str | None]:
    """Return the content of each file, None for a file to remove. Raises ValueError or OSError."""
    params = module.params
    if params["state"] == "absent":
        return {params["key_file"]: None, params["environment_file"]: None}
    if problem := api_access.key_problem(params["key"]):
        raise ValueError(f"The key of the API: {problem}.")
    key = params["key"] or io_local.read(params["key_file"]) or secrets.token_hex(32)
    module.no_log_values.add(key)
    ranks = {str(name): str(value) for name, value in params["environment"].items()}
    return {
        params["key_file"]: f"{key}\n",
        params["environment_file"]: systemd.environment_file(api_access.environment(key, ranks)),
    }


def write(wanted: dict[str, str | None], differing: list[str], keep: str) -> None:
    """Write or remove the files. The file named in ``keep`` has only a wrong mode. Raises OSError."""
    for path in differing:
        text = wanted[path]
        if text is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        elif path == keep:
            os.chmod(path, _MODE)
        else:
            io_file.add_folder(os.path.dirname(path))
            io_file.write_file(path, text, _MODE, (os.geteuid(), os.getegid()))


if __name__ == "__main__":
    main()
