#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_smoke
short_description: Ask a model a completion, a chat and a streamed chat, and judge the answers
version_added: 0.1.0
description:
  - Refuses answers that are empty, that break off, or, of a model that reasons, a stream without reasoning or without content after it.
  - All that is wrong is said together.
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
    description: The length of each answer. A model that reasons needs hundreds before it says anything.
    type: int
    default: 8
  reasoning:
    description: Whether the model reasons. If not, reasoning counts as an answer where there is some.
    type: bool
    default: false
  timeout:
    description: Seconds within which each answer must be whole.
    type: int
    default: 300
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
  - gb10.cluster.api.key
"""

EXAMPLES = r"""
- name: Prove that the model answers
  gb10.cluster.vllm_smoke:
    url: http://127.0.0.1:8000
    model: gpt-oss-120b
    max_tokens: 512
    reasoning: true
  become: true
"""

RETURN = r"""
answers:
  description: What came back, by question, C(completion), C(chat) and C(stream); one that got no answer is left out.
  returned: always
  type: dict
  contains:
    text:
      description: The answer's text.
      type: str
    reasoning:
      description: What the model thought before.
      type: str
    reasoning_field:
      description: Under which name reasoning came, C(reasoning) or C(reasoning_content), empty if none did.
      type: str
    finish_reason:
      description: Why the answer ended.
      type: str
    usage:
      description: The server's count of tokens.
      type: dict
    first_token_after:
      description: Seconds until the first token, of the stream alone.
      type: float
    tokens_per_second:
      description: How fast the others came, of the stream alone, null if that cannot be told.
      type: float
problems:
  description: What is wrong with the answers.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as arguments
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client as io_vllm
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_smoke


def main() -> None:
    """Ask and judge."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            # A number and no secret, whatever its name.
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
        module.fail_json(msg=f"The API is healthy, but does not answer as it should: {'; '.join(problems)}", answers=answers, problems=problems)
    module.exit_json(changed=False, answers=answers, problems=[])


if __name__ == "__main__":
    main()
