#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_smoke_test
short_description: Send a completion, a chat and a streamed chat request to a model, and validate the answers
version_added: 0.1.0
description:
  - Rejects empty and incomplete answers. For a reasoning model, also rejects a stream without reasoning or content.
  - Reports all problems together.
options:
  url:
    description: The API's address, without path.
    type: str
    required: true
  model:
    description: The served model's name.
    type: str
    required: true
  max_tokens:
    description: Maximum tokens of each answer. A reasoning model needs hundreds before its first content.
    type: int
    default: 8
  reasoning:
    description: Whether the model is a reasoning model. If not, reasoning also counts as an answer.
    type: bool
    default: false
  timeout:
    description: Maximum seconds for each complete answer.
    type: int
    default: 300
seealso:
  - module: gb10.cluster.vllm_info
  - module: gb10.cluster.vllm_wait
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
  - gb10.cluster.api.key
"""

EXAMPLES = r"""
- name: Verify that the model answers
  gb10.cluster.vllm_smoke_test:
    url: http://127.0.0.1:8000
    model: gpt-oss-120b
    max_tokens: 512
    reasoning: true
  become: true
"""

RETURN = r"""
answers:
  description: The answers by request, C(completion), C(chat) and C(stream); a request without an answer is left out.
  returned: always
  type: dict
  contains:
    text:
      description: The answer's text.
      type: str
    reasoning:
      description: The model's reasoning before the text.
      type: str
    reasoning_field:
      description: Name of the field with the reasoning, C(reasoning) or C(reasoning_content), empty without reasoning.
      type: str
    finish_reason:
      description: Why the answer ended.
      type: str
    usage:
      description: The server's count of tokens.
      type: dict
    answered:
      description: When the answer was complete, in seconds since boot.
      type: float
    first_token_after:
      description: Seconds until the first token, for the stream only.
      type: float
    tokens_per_second:
      description: Rate of the other tokens, for the stream only, null if unknown.
      type: float
problems:
  description: The problems of the answers.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as arguments
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client as io_vllm
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_smoke


def main() -> None:
    """Send the requests and validate the answers."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            # A number, not a secret despite its name.
            "max_tokens": {"type": "int", "default": 8, "no_log": False},
            "reasoning": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 300},
            **arguments.API,
            **arguments.API_KEY,
        },
        supports_check_mode=True,
    )
    given = dict(module.params)
    server = io_vllm.Server(given.pop("url"), given.pop("ca_file"), given.pop("server_name"))
    answers, problems = io_smoke.test(server, **given)
    if problems:
        found = f"The API is healthy, but its answers are invalid: {'; '.join(problems)}"
        module.fail_json(msg=found, answers=answers, problems=problems)
    module.exit_json(changed=False, answers=answers, problems=[])


if __name__ == "__main__":
    main()
