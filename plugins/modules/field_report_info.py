#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: field_report_info
short_description: Read the evidence of a node that needs no plan, no runtime and no model
version_added: 0.1.0
description:
  - Reads versions, memory and clocks of the GPU, the files and profiles of the network, the requirements of a
    compilation of kernels, and the state of apt and systemd.
  - Only known lines of the logs leave the node. They are steps of a start, symptoms, and exceptions. The others are
    counted.
  - Each item is read alone. RV(unread) has the reason for one that could not be read.
  - A node that cannot be read is a result too. The action plugin returns the reason as C(evidence) in RV(unread).
options:
  install_dir:
    description: The directory that holds the runtimes and models.
    type: path
    default: /opt/gb10
seealso:
  - module: gb10.cluster.cluster_verify_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the evidence
  gb10.cluster.field_report_info:
  become: true
"""

RETURN = r"""
evidence:
  description: The items, each a text, a list of texts, an object, or null if it could not be read.
  returned: success
  type: dict
  sample: {"netplan_accepted": "yes", "devices": ["/dev/nvidia0 0666"], "reboot": ["*** System restart required ***"]}
unread:
  description: The items that could not be read, with the reason.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import parallel_runner
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import io_evidence

#: Seconds for each command: nvidia-smi may hang on a faulty node.
_TIMEOUT = 30


def main() -> None:
    """Return the evidence."""
    module = AnsibleModule(
        argument_spec={"install_dir": {"type": "path", "default": "/opt/gb10"}}, supports_check_mode=True
    )
    run_all = parallel_runner(module, _TIMEOUT)
    module.exit_json(changed=False, **io_evidence.read(lambda argv: run_all([argv])[0], module.params["install_dir"]))


if __name__ == "__main__":
    main()
