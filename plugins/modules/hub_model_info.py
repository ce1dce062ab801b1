#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: hub_model_info
short_description: Read a model's commit, config.json and size from Hugging Face Hub before the download
version_added: 0.1.0
description:
  - Resolves the revision to a commit, and reads config.json and the index of the weights at that commit.
  - Size and time are limited. Needs only Python's standard library.
  - The module does not fail if Hugging Face Hub is unreachable; RV(hub_model.trouble) has the reason.
options:
  name:
    description: OWNER/NAME of the model.
    type: str
    required: true
  revision:
    description: A commit, tag or branch.
    type: str
    default: main
  environment:
    description:
      - Environment variables of the download, a free-form mapping, such as E(HF_ENDPOINT), E(HTTPS_PROXY), E(NO_PROXY)
        or E(SSL_CERT_FILE).
      - The module ignores proxies in the login's own environment.
    type: dict
    default: {}
  token:
    description: The token of a Hugging Face account, for gated and private models; empty for none.
    type: str
    default: ""
  exclude:
    description: Patterns of files that are not downloaded. Their weights do not count.
    type: list
    elements: str
    default: []
  record:
    description:
      - A file with the result of an earlier run.
      - It is used if Hugging Face Hub is unreachable, or if O(revision) is its commit.
    type: path
    default: /etc/gb10/hub-model.json
  timeout:
    description: Total timeout in seconds.
    type: int
    default: 60
seealso:
  - module: gb10.cluster.model_store_info
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the model's configuration from Hugging Face Hub
  gb10.cluster.hub_model_info:
    name: openai/gpt-oss-120b
    environment:
      HTTPS_PROXY: http://proxy.example:3128
  register: hub
"""

RETURN = r"""
hub_model:
  description: The model.
  returned: always
  type: dict
  contains:
    name:
      description: The model's name.
      type: str
    revision:
      description: The requested revision.
      type: str
    commit:
      description: The commit of the revision, empty if unknown.
      type: str
    model:
      description: Its C(config.json), null if unknown.
      type: dict
    model_bytes:
      description: Bytes of its safetensors, from their index if there is one; null if unknown.
      type: int
    model_reason:
      description: Why vLLM cannot load the weights, empty if it can.
      type: str
    trouble:
      description: Why the query of Hugging Face Hub failed, empty if it succeeded.
      type: str
    refused:
      description: The HTTP status if it is 401, 403 or 404, because a download would fail too; else 0.
      type: int
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_hub


def main() -> None:
    """Query Hugging Face Hub and return the result."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "revision": {"type": "str", "default": "main"},
            "environment": {"type": "dict", "default": {}},
            "token": {"type": "str", "default": "", "no_log": True},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "record": {"type": "path", "default": "/etc/gb10/hub-model.json"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    given = module.params
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    try:
        os.environ.update({str(name): str(value) for name, value in given["environment"].items()})
    except ValueError as error:
        module.fail_json(msg=f"environment: {error}")

    def ask() -> dict[str, object]:
        return io_hub.describe(
            given["name"], given["revision"], given["token"], given["exclude"], given["timeout"], module.tmpdir
        )

    module.exit_json(changed=False, hub_model=io_hub.known(given["name"], given["revision"], given["record"], ask))


if __name__ == "__main__":
    main()
