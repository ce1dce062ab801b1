#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: debian_packages
short_description: Install missing Debian packages, and wait for apt's lock
version_added: 0.1.0
description:
  - Installs the packages that are missing with M(ansible.builtin.apt), without recommended packages.
  - Before that, updates package lists that are older than a day. If this fails, it uses the old lists and warns.
  - While another process holds a lock of apt or dpkg, waits and shows that process.
  - The action plugin waits and installs. The module only reads.
options:
  names:
    description: Packages in apt's syntax, such as C(g++) or C(g++=4:13.2.0-7ubuntu1).
    type: list
    elements: str
    required: true
  timeout:
    description: Maximum seconds to wait for the lock.
    type: int
seealso:
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Install two packages
  gb10.cluster.debian_packages:
    names: [g++, python3-dev]
    timeout: 900
  become: true
"""

RETURN = r"""
packages:
  description: The packages that were missing.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_packages


def main() -> None:
    """Return the state of the packages."""
    module = AnsibleModule(
        argument_spec={"names": {"type": "list", "elements": "str", "required": True}, "timeout": {"type": "int"}},
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **io_packages.read(runner(module), module.params["names"]))
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
