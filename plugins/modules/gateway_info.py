#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gateway_info
short_description: Read which models the gateway on this host reaches, and how much its clients use them
version_added: 0.1.0
description:
  - Reads the gateway's report with the key of the host, which only root can read. Returns no key and no digest of a
    key.
  - Can send one short request to each healthy model.
  - The action plugin of this name takes the gateway's address from the variables of the role gateway, and adds texts.
options:
  url:
    description: The gateway on this host, without path. Empty for that of the role's variables.
    type: str
    default: ""
  server_name:
    description: The name in the gateway's certificate, empty without TLS. The default is that of the role's variables.
    type: str
    default: ""
  ca_file:
    description: The gateway's certificate or its CA, for an https address.
    type: path
    default: /etc/gb10/gateway/tls.crt
  key_file:
    description: The file with the key of the host.
    type: path
    default: /etc/gb10/gateway/operator.key
  clients_file:
    description: The file with the clients.
    type: path
    default: /etc/gb10/gateway/clients.json
  expected:
    description: The entries that the report must have, as C(CLUSTER/MODEL); any if empty.
    type: list
    elements: str
    default: []
  healthy:
    description: A cluster whose models must be healthy in the report; empty for none.
    type: str
    default: ""
  timeout:
    description: Seconds to wait for the report with the expected entries.
    type: int
    default: 0
  test:
    description: Whether to send a request to each healthy model.
    type: bool
    default: false
  test_timeout:
    description: Seconds for each of these requests.
    type: int
    default: 120
  new_client:
    description: A client that a later task creates, for RV(refusal). Empty for none.
    type: str
    default: ""
  new_client_models:
    description: The models that O(new_client) may use; empty for all.
    type: list
    elements: str
    default: []
seealso:
  - module: gb10.cluster.gateway_key
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Read the state of the gateway
  gb10.cluster.gateway_info:
  become: true
  register: gateway
"""

RETURN = r"""
problem:
  description: Why the report is missing, empty if there is one.
  returned: always
  type: str
models:
  description: >-
    Each entry with C(id), C(name), C(cluster), C(kind), C(healthy), its last C(error), and the time C(checked) in
    seconds since 1970.
  returned: always
  type: list
  elements: dict
clients:
  description: >-
    Each client with C(name), the times C(created) and C(last) in seconds since 1970, its C(models) (empty for all), and
    its C(usage) by model.
  returned: always
  type: list
  elements: dict
unanswered:
  description: The models whose test request failed, each with the reason.
  returned: always
  type: dict
lines:
  description: The models and the clients, for people.
  returned: success
  type: list
  elements: str
example:
  description: How clients reach the gateway, with a request, and the models without an answer.
  returned: success
  type: list
  elements: str
client_settings:
  description: The settings of common clients, with a placeholder for the key.
  returned: success
  type: list
  elements: str
place:
  description: >-
    How another task reaches the gateway from its host, C(url) and C(server_name), and the seconds C(interval) between
    two checks.
  returned: success
  type: dict
refusal:
  description: Why O(new_client) cannot be created, empty if it can.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import io_info, schema, usage
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client


def main() -> None:
    """Return the state."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "default": ""},
            "server_name": {"type": "str", "default": ""},
            "ca_file": {"type": "path", "default": schema.CERTIFICATE},
            "key_file": {"type": "path", "default": schema.OPERATOR_KEY, "no_log": False},
            "clients_file": {"type": "path", "default": schema.CLIENTS},
            "expected": {"type": "list", "elements": "str", "default": []},
            "healthy": {"type": "str", "default": ""},
            "timeout": {"type": "int", "default": 0},
            "test": {"type": "bool", "default": False},
            "test_timeout": {"type": "int", "default": 120},
            # Only the action uses them.
            "new_client": {"type": "str", "default": ""},
            "new_client_models": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    gateway = io_info.Gateway(io_client.Server(given["url"], given["ca_file"], given["server_name"]), given["key_file"])
    try:
        found, problem = gateway.report(given["expected"], given["timeout"], given["healthy"])
        clients = io_info.rows(given["clients_file"], found.get("usage", usage.Usage()))
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    models = found.get("models", [])
    kinds = {model["name"]: model["kind"] for model in models if model["healthy"]} if given["test"] else {}
    reasons = {name: gateway.answers(name, kind, given["test_timeout"]) for name, kind in kinds.items()}
    unanswered = {name: reason for name, reason in reasons.items() if reason}
    module.exit_json(changed=False, problem=problem, models=models, clients=clients, unanswered=unanswered)


if __name__ == "__main__":
    main()
