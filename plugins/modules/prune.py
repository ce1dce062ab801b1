#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: prune
short_description: List the stored models, runtimes, builds, images and caches of a node, and remove named ones
version_added: 0.1.0
description:
  - Lists the items that this collection stored on the node, with sizes and with the launches that need them.
  - Removes only the items in O(names), and none that the inputs of a recorded launch or of an installed service name.
options:
  names:
    description: The items to remove, as RV(stored) lists them. The node may lack some.
    type: list
    elements: str
    default: []
  install_dir:
    description: The folder with the runtimes. Another folder that an installed service uses is found by itself.
    type: path
    default: /opt/gb10
  user:
    description: The name of the service user, in whose home the caches are.
    type: str
    default: gb10
seealso:
  - module: gb10.cluster.uninstall
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: List the stored items
  gb10.cluster.prune:
  become: true

- name: Remove a model that no launch needs
  gb10.cluster.prune:
    names: [models/openai--gpt-oss-20b/6cee5e81ee83917806bbde320786a8fb61efebee]
  become: true
"""

RETURN = r"""
stored:
  description: The names of the stored items.
  returned: success
  type: list
  elements: str
  sample: [models/openai--gpt-oss-20b/6cee5e81ee83917806bbde320786a8fb61efebee, runtime/c38aa75c644e]
lines:
  description: The items as text, one line each, with size and the launches that need it.
  returned: success
  type: list
  elements: str
  sample: ["  13.8 GB  models/openai--gpt-oss-20b/6cee5e81ee83917806bbde320786a8fb61efebee"]
problems:
  description: Why items in O(names) may not be removed. Without check mode they are an error.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import problems
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_node, io_prune, prune


def main() -> None:
    """Read the items, decide, and remove."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "default": []},
            "install_dir": {"type": "path", "default": "/opt/gb10"},
            "user": {"type": "str", "default": "gb10"},
        },
        supports_check_mode=True,
    )
    run, wanted = runner(module), module.params["names"]
    try:
        items = io_prune.read(run, module.params["install_dir"], module.params["user"])
        refused = prune.refused(items, wanted)
        removed = [item for item in items if item.name in wanted and not item.kept]
        if not module.check_mode:
            problems.refuse(refused)
            io_prune.remove(run, removed)
    except (io_node.UninstallError, problems.ProblemsError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    names = "".join(f"{item.name}\n" for item in removed)
    module.exit_json(
        changed=bool(removed),
        stored=[item.name for item in items],
        lines=prune.lines(items, wanted),
        problems=list(map(str, refused)),
        diff={"before": names, "after": ""},
    )


if __name__ == "__main__":
    main()
