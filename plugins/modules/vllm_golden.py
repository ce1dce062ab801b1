#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_golden
short_description: Send fixed requests at temperature 0 to a model, and compare its answers with a record
version_added: 0.1.0
description:
  - Sends completions, chats, a long prompt and a known text to the server of the fact C(gb10_plan).
  - The action plugin reads the record on the controller, and judges the answers that the module collects. It writes no
    file.
  - Refuses a server that generates no tokens or returns too few log-probabilities. Without O(bounds), also refuses an
    invalid record.
  - Answers that fail are in RV(problem), not an error of the task.
options:
  directory:
    description: The folder on the controller with one record for each model.
    type: path
    required: true
  result_file:
    description: The file on the controller for the last result, empty for none.
    type: path
    default: ""
  renew:
    description: Whether the answers become the new record, also if they differ.
    type: bool
    default: false
  bounds:
    description: The accepted differences. Without them, the task verifies the record, and sends no request.
    type: dict
    suboptions:
      tie:
        description: The largest difference of two candidates' log-probabilities that counts as a tie.
        type: float
        required: true
      distance:
        description: The largest accepted mean distance of an answer's log-probabilities from the record.
        type: float
        required: true
      perplexity_change:
        description: The accepted relative change of the known text's perplexity.
        type: float
        required: true
      perplexity:
        description: Without a record, a higher perplexity of the known text is a warning.
        type: float
        required: true
      strict:
        description: Whether warnings are failures too.
        type: bool
        required: true
  url:
    description: The API's address, without path. The action plugin sets it and the following options from the plan.
    type: str
    default: ""
  model:
    description: The served model's name.
    type: str
    default: ""
  root:
    description: The path or Hub name that the server must report for the model, empty for any.
    type: str
    default: ""
  tools:
    description: Whether the server parses tool calls.
    type: bool
    default: false
  prompts:
    description:
      - The prompts of the record as JSON, an object of lists of token IDs by request; empty without a record.
      - The module sends one of them where the server renders another prompt, for example with another date. It is not
        logged.
    type: str
    default: ""
  timeout:
    description: Maximum seconds for each complete answer.
    type: int
    default: 300
seealso:
  - module: gb10.cluster.vllm_smoke_test
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
  - gb10.cluster.api.key
"""

EXAMPLES = r"""
- name: Compare the golden answers with the record
  gb10.cluster.vllm_golden:
    directory: /srv/inventory/.gb10/golden
    bounds:
      tie: 0.5
      distance: 0.25
      perplexity_change: 0.1
      perplexity: 100.0
      strict: false
  become: true
  register: golden

- name: Show the result
  gb10.cluster.show:
    lines: "{{ golden.lines }}"
"""

RETURN = r"""
outcome:
  description: The result in one line, empty for an invalid record or run.
  returned: success, with O(bounds)
  type: str
lines:
  description: The result as text.
  returned: success, with O(bounds)
  type: list
  elements: str
end:
  description: The comparison in one line, and where the record is or could be.
  returned: success, with O(bounds)
  type: list
  elements: str
problem:
  description: Why the answers fail, empty if they do not.
  returned: success, with O(bounds)
  type: str
files:
  description: The files to write on the controller, O(result_file) and a renewed record, each with C(path) and
    C(content).
  returned: success, with O(bounds)
  type: list
  elements: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as common_argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.golden import io_golden, parse
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import ARGUMENTS
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_end
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server, api_key
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import AnswerError


def main() -> None:
    """Send the requests."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "url": {"type": "str", "default": ""},
            "model": {"type": "str", "default": ""},
            "root": {"type": "str", "default": ""},
            "tools": {"type": "bool", "default": False},
            # Long, and of no use in the host's journal.
            "prompts": {"type": "str", "default": "", "no_log": True},
            "timeout": {"type": "int", "default": 300},
            **common_argument_spec.API,
            **common_argument_spec.API_KEY,
        },
        supports_check_mode=True,
    )
    given = {name: value for name, value in module.params.items() if name not in ARGUMENTS}
    server = Server(given.pop("url"), given.pop("ca_file"), given.pop("server_name"))
    unit, began = given.pop("unit"), time.monotonic()
    try:
        secret = api_key(given.pop("key_file"), unit)
        found = io_golden.run(server, secret=secret, prompts=parse.prompts(given.pop("prompts")), **given)
    except (AnswerError, parse.InvalidError) as error:
        cause = io_end.since(runner(module), unit, began)
        module.fail_json(msg=f"The golden answers could not be collected: {error}.{cause}")
    module.exit_json(changed=False, run=found)


if __name__ == "__main__":
    main()
