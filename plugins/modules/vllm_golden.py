#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_golden
short_description: Send fixed requests at temperature 0 to a model, and return its answers with log-probabilities
version_added: 0.1.0
description:
  - Sends completions, chats, a long prompt and a known text. Does not judge the answers; the filter
    P(gb10.cluster.golden_verdict#filter) does.
  - A request without a valid answer is a problem in the result, not an error of the module.
options:
  url:
    description: The API's address, without path.
    type: str
    required: true
  model:
    description: The served model's name.
    type: str
    required: true
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
- name: Collect golden answers
  gb10.cluster.vllm_golden:
    url: http://127.0.0.1:8000
    model: gpt-oss-120b
  become: true
"""

RETURN = r"""
run:
  description: The answers and figures.
  returned: success
  type: dict
  contains:
    answers:
      description: By request, text, and the token IDs of prompt and answer with log-probabilities and candidates.
      type: dict
    perplexity:
      description: Perplexity of the known text, null if unknown.
      type: float
    acceptance:
      description: Accepted share of the drafted tokens, null without speculative decoding.
      type: float
    vllm:
      description: The release of vLLM.
      type: str
    problems:
      description: Requests without a valid answer.
      type: list
      elements: str
    notes:
      description: Requests that this server does not support, or that used a recorded prompt.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as arguments
from ansible_collections.gb10.cluster.plugins.module_utils.golden import io_golden, parse
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import AnswerError


def main() -> None:
    """Send the requests."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "root": {"type": "str", "default": ""},
            "tools": {"type": "bool", "default": False},
            # Long, and of no use in the host's journal.
            "prompts": {"type": "str", "default": "", "no_log": True},
            "timeout": {"type": "int", "default": 300},
            **arguments.API,
            **arguments.API_KEY,
        },
        supports_check_mode=True,
    )
    given = dict(module.params)
    server = Server(given.pop("url"), given.pop("ca_file"), given.pop("server_name"))
    try:
        found = io_golden.run(server, prompts=parse.prompts(given.pop("prompts")), **given)
    except (AnswerError, parse.InvalidError) as error:
        module.fail_json(msg=f"The golden answers could not be collected: {error}")
    module.exit_json(changed=False, run=found)


if __name__ == "__main__":
    main()
