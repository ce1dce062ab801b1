#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: benchmark_plot
short_description: Draw the result of a benchmark
version_added: 0.1.0
description:
  - Draws throughput and inter-token latency over the number of requests at the same time, or the throughput of several
    models as a heat map. Runs on the controller.
  - Without matplotlib it draws nothing and is successful.
options:
  src:
    description: The document of a benchmark, or of several models.
    type: path
    required: true
  dest:
    description: The SVG file to write.
    type: path
    required: true
attributes:
  check_mode:
    support: full
    description: In check mode, writes nothing.
  diff_mode:
    support: none
    description: The file is a drawing.
seealso:
  - module: gb10.cluster.vllm_benchmark
author:
  - gb10.cluster maintainers (@gb10-cluster)
"""

EXAMPLES = r"""
- name: Draw a benchmark
  gb10.cluster.benchmark_plot:
    src: inventories/mine/.gb10/benchmarks/tiny-20261122T213000Z.json
    dest: inventories/mine/.gb10/benchmarks/tiny-20261122T213000Z.svg
  delegate_to: localhost
"""

RETURN = r"""
line:
  description: The path of the drawing, or the reason why there is none.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import io_plot


def main() -> None:
    """Draw the plots."""
    module = AnsibleModule(
        argument_spec={"src": {"type": "path", "required": True}, "dest": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, line="plots: none in check mode")
    try:
        line = io_plot.draw(module.params["src"], module.params["dest"])
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=line.endswith(module.params["dest"]), line=line)


if __name__ == "__main__":
    main()
