#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_arguments_info
short_description: Read the arguments and environment variables of an installed vLLM
version_added: 0.1.0
description:
  - Builds the parser of C(vllm serve) with the installed vLLM. Returns its options and the variables of its C(envs.py).
  - Use it for releases newer than those in this collection's option table. It takes the CPU time of an import of vLLM.
options:
  python:
    description: The Python interpreter with vLLM, or a command that runs it, such as a container engine with arguments.
    type: list
    elements: str
    required: true
seealso:
  - module: gb10.cluster.vllm_lint
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the arguments of vLLM in a virtual environment
  gb10.cluster.vllm_arguments_info:
    python: /opt/gb10/venv/bin/python
  register: arguments

- name: Read the arguments of vLLM in an image
  gb10.cluster.vllm_arguments_info:
    python: [podman, run, --rm, --network=none, --entrypoint=python3, docker.io/vllm/vllm-openai:v0.32.0]
"""

RETURN = r"""
version:
  description: The release.
  returned: success
  type: str
  sample: 0.32.0
ray:
  description: The release of Ray, empty if it is not installed.
  returned: success
  type: str
  sample: 2.60.0
nccl:
  description: The release of the NCCL that its ranks load, empty if it is not installed.
  returned: success
  type: str
  sample: 2.30.7
options:
  description: Every option of C(vllm serve) except C(--help).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its first long name.
      type: str
      sample: --tensor-parallel-size
    aliases:
      description: Its other names, including the C(--no-) form of a negatable flag.
      type: list
      elements: str
    kind:
      description:
        - Its number of values.
        - C(value) (one), C(optional) (none or one), C(list) (one or more), C(append) (one, repeatable) or C(flag)
          (none).
      type: str
    choices:
      description: Its valid values, empty if it accepts any value.
      type: list
      elements: str
    fold:
      description: The case conversion of a value before the comparison, C(lower), C(upper) or empty.
      type: str
    open:
      description: Whether vLLM checks values only after it has parsed the arguments. Plugins can then add choices.
      type: bool
variables:
  description: The environment variables that this vLLM reads.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import answer as vllm_release_answer
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect


def main() -> None:
    """Run the program with vLLM's Python and return its result."""
    module = AnsibleModule(
        argument_spec={"python": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    python = module.params["python"]
    if not python:
        module.fail_json(msg="python is empty. Expected: the Python interpreter with vLLM. Fix: set python")
    status, stdout, stderr = runner(module)([*python, "-c", io_introspect.program()])
    if status != 0:
        reported = [line for line in stderr.splitlines() if line.strip()] or [f"status {status}"]
        module.fail_json(msg=f"{' '.join(python)} could not read vLLM's arguments: {reported[-1]}")
    try:
        # vLLM and its plugins may print other lines before the result.
        answer = vllm_release_answer.answered(stdout)
    except ValueError as error:
        module.fail_json(
            msg=f"{' '.join(python)} returned no valid JSON of vLLM's arguments: {stdout[-500:]!r} ({error})"
        )
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
