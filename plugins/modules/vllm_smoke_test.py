#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_smoke_test
short_description: Send requests to a model, and validate its answers, vectors or scores
version_added: 0.1.0
description:
  - A generating model gets a completion, a chat and a streamed chat request. Rejects empty and incomplete answers. For
    a reasoning model, also rejects a stream without reasoning or content.
  - An embedding model gets four sentences, a reranker a query with four documents. Rejects vectors and scores of a
    wrong shape, with numbers that are not finite, or that contradict the meaning of the texts.
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
  kind:
    description: The kind of the model.
    type: str
    choices: [generate, embed, rerank]
    default: generate
  dimension:
    description: Numbers of each vector of an embedding model, 0 for any.
    type: int
    default: 0
  meaning:
    description:
      - Whether vectors and scores must agree with the meaning of the texts. If not, equal texts must have equal
        results, and others different ones, as with random weights.
    type: bool
    default: true
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

- name: Verify that the model embeds
  gb10.cluster.vllm_smoke_test:
    url: http://127.0.0.1:8000
    model: Qwen3-Embedding-0.6B
    kind: embed
    dimension: 1024
  become: true
"""

RETURN = r"""
answers:
  description: The answers by request, C(completion), C(chat) and C(stream); a request without an answer is left out.
    Empty for a pooling model.
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
answered:
  description: When the first answer was complete, in seconds since boot.
  returned: always
  type: float
lines:
  description: The results as lines for people.
  returned: always
  type: list
  elements: str
  sample: ["scores: 0.0001, 0.9987, 0.0001, 0.0001", "answered after 0.12 s"]
problems:
  description: The problems of the answers.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as common_argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_smoke, probe


def main() -> None:
    """Send the requests and validate the answers."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "kind": {"type": "str", "choices": list(probe.ANSWERS), "default": "generate"},
            "dimension": {"type": "int", "default": 0},
            "meaning": {"type": "bool", "default": True},
            # A number, not a secret despite its name.
            "max_tokens": {"type": "int", "default": 8, "no_log": False},
            "reasoning": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 300},
            **common_argument_spec.API,
            **common_argument_spec.API_KEY,
        },
        supports_check_mode=True,
    )
    given = dict(module.params)
    server = io_client.Server(given.pop("url"), given.pop("ca_file"), given.pop("server_name"))
    secret = io_client.api_key(given.pop("key_file"), given.pop("unit"))
    found = io_smoke.result(server, secret=secret, **given)
    if found["problems"]:
        module.fail_json(**found)
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
