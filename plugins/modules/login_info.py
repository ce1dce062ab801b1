#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: login_info
short_description: Log in to a machine and run sudo, without a failure if it refuses
version_added: 0.1.0
description:
  - Logs in as the task's connection does, and verifies whether sudo needs a password.
  - With O(sudo), runs a command with C(become) of the task instead.
  - In check mode, only a task with C(check_mode=false) logs in.
  - The action plugin of this name does the work.
options:
  sudo:
    description: Whether to verify C(become) of the task.
    type: bool
    default: false
seealso:
  - module: gb10.cluster.access_report
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Log in by key
  gb10.cluster.login_info:
  vars:
    ansible_ssh_extra_args: -o BatchMode=yes -o PreferredAuthentications=publickey
  check_mode: false
  register: login
"""

RETURN = r"""
reason:
  description: Why the login or sudo does not work, else empty.
  returned: success
  type: str
sudo_free:
  description: Whether sudo needs no password. Always false with O(sudo).
  returned: success
  type: bool
"""
