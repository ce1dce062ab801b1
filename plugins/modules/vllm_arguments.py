#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_arguments
short_description: Ask an installed vLLM which arguments and environment variables it knows
version_added: 0.1.0
description:
  - Builds the parser of C(vllm serve) with the vLLM that is installed, and returns its options, and the variables of its C(envs.py).
  - This is for releases that are newer than those whose arguments this collection knows. It takes the CPU time of an import of vLLM.
options:
  python:
    description: The Python that vLLM is installed for, or what runs it, such as a container engine with its arguments.
    type: list
    elements: str
    required: true
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Ask the vLLM of a virtual environment
  gb10.cluster.vllm_arguments:
    python: /opt/gb10/venv/bin/python
  register: arguments

- name: Ask the vLLM of an image
  gb10.cluster.vllm_arguments:
    python: [podman, run, --rm, --network=none, --entrypoint=python3, docker.io/vllm/vllm-openai:v0.32.0]
"""

RETURN = r"""
version:
  description: The release.
  returned: success
  type: str
  sample: 0.32.0
options:
  description: Every option of C(vllm serve) but C(--help).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The first of its long names.
      type: str
      sample: --tensor-parallel-size
    aliases:
      description: Its other names, with the C(--no-) form of a flag that can be turned off.
      type: list
      elements: str
    kind:
      description: How many values it takes. C(value), C(optional) (none or one), C(list) (one or more), C(append) (one, several times) or C(flag).
      type: str
    choices:
      description: The values that it takes, empty where it takes any.
      type: list
      elements: str
    fold:
      description: How a value is changed before it is compared with these, C(lower), C(upper) or nothing.
      type: str
    open:
      description: Whether values are looked up only after the arguments were read, where plugins can add to the choices.
      type: bool
variables:
  description: The environment variables that it reads.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import answer as vllm_release_answer
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect as io_vllm_arguments


def main() -> None:
    """Run the program under vLLM's Python and return what it says."""
    module = AnsibleModule(
        argument_spec={"python": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    python = module.params["python"]
    if not python:
        module.fail_json(msg="python is empty: name the Python that vLLM is installed for")
    status, stdout, stderr = runner(module)([*python, "-c", io_vllm_arguments.program()])
    if status != 0:
        said = [line for line in stderr.splitlines() if line.strip()] or [f"status {status}"]
        module.fail_json(msg=f"{' '.join(python)} could not tell vLLM's arguments: {said[-1]}")
    try:
        # vLLM and its plugins may print lines of their own before.
        answer = vllm_release_answer.answered(stdout)
    except ValueError as error:
        module.fail_json(msg=f"{' '.join(python)} answered no JSON of vLLM's arguments: {stdout[-500:]!r} ({error})")
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
