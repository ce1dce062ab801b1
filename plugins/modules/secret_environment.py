#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: secret_environment
short_description: Manage a file with secret environment variables for the units of the ranks
version_added: 0.1.0
description:
  - Root owns the file, with mode 0600; systemd reads it. Neither the result nor the diff contains a value.
options:
  variables:
    description: The variables with their values. Without any, the file is removed.
    type: dict
    default: {}
  path:
    description: The file.
    type: path
    default: /etc/gb10/secret.env
seealso:
  - module: gb10.cluster.vllm_api_key
  - module: gb10.cluster.vllm_host_ip
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Store a Hugging Face token
  gb10.cluster.secret_environment:
    variables:
      HF_TOKEN: "{{ token_from_a_vault }}"
  become: true
"""

RETURN = r"""
version:
  description: >-
    Changes with the file but reveals nothing about its values: it is keyed with a random salt that only the file has.
    Launch inputs may therefore contain it. Empty without a file.
  returned: always
  type: str
  sample: 5f2b8e0f4d7f0f7fb7f0a1f3c5d2e4b6
"""

import contextlib
import os
import secrets

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths, secret_environment

_MODE = 0o600


def main() -> None:
    """Compare and write."""
    module = AnsibleModule(
        argument_spec={
            "variables": {"type": "dict", "default": {}, "no_log": True},
            "path": {"type": "path", "default": paths.SECRET_ENVIRONMENT},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    variables = {str(name): str(value) for name, value in module.params["variables"].items()}
    try:
        found, mode = io_file.read_file(path)
        # Keep the salt while the file exists, so that the version changes only with the values.
        salt = secret_environment.salt_of(found or "") or secrets.token_hex(16)
        wanted = secret_environment.text(variables, salt) if variables else None
        changed = (found, mode) != (wanted, None if wanted is None else _MODE)
        if changed and not module.check_mode:
            if wanted is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            else:
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                io_file.write_file(path, wanted, _MODE, (os.geteuid(), os.getegid()))
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    summary = f"{path}: {'no such file' if wanted is None else 'only root can read it'}\n" if changed else ""
    module.exit_json(
        changed=changed, version=secret_environment.version(wanted or ""), diff={"before": "", "after": summary}
    )


if __name__ == "__main__":
    main()
