#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: hub_model_info
short_description: Read what a model on the Hugging Face hub is, before it is downloaded
version_added: 0.1.0
description:
  - Resolves the revision to a commit, and reads config.json and the index of the weights at that commit, of limited size and in limited time.
  - It needs no library beside Python's own. A hub that does not answer is told in the answer, and no failure.
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
      - Environment variables of the download, a free-form mapping, such as E(HF_ENDPOINT), E(HTTPS_PROXY), E(NO_PROXY) or E(SSL_CERT_FILE).
      - Proxies of the login's own environment do not count.
    type: dict
    default: {}
  token:
    description: The token of an account on the hub, for gated and private models; empty for none.
    type: str
    default: ""
  exclude:
    description: Patterns of files that are not downloaded, whose weights do not count.
    type: list
    elements: str
    default: []
  record:
    description: A file with the answer of an earlier run, which counts where the hub does not answer, and for a commit.
    type: path
    default: /etc/gb10/hub-model.json
  timeout:
    description: Seconds for all of it.
    type: int
    default: 60
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read what the model is
  gb10.cluster.hub_model_info:
    name: openai/gpt-oss-120b
    environment:
      HTTPS_PROXY: http://proxy.example:3128
  register: hub
"""

RETURN = r"""
hub_model:
  description: What the model is.
  returned: always
  type: dict
  contains:
    name:
      description: The model.
      type: str
    revision:
      description: What was asked for.
      type: str
    commit:
      description: The commit that it is, empty if nobody told.
      type: str
    model:
      description: Its C(config.json), null if nobody told.
      type: dict
    model_bytes:
      description: Bytes of its safetensors, as their index says if there is one; null if not known.
      type: int
    model_reason:
      description: What is wrong with the weights, empty if nothing.
      type: str
    trouble:
      description: Why the hub did not tell, empty if it did.
      type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_hub


def main() -> None:
    """Ask, and return."""
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
        return io_hub.describe(given["name"], given["revision"], given["token"], given["exclude"], given["timeout"], module.tmpdir)

    module.exit_json(changed=False, hub_model=io_hub.known(given["name"], given["revision"], given["record"], ask))


if __name__ == "__main__":
    main()
