#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_inputs
short_description: The values of all variables of this collection on a host, and the files that they name
version_added: 0.1.0
description:
  - Reads the names, types and defaults of all variables from C(meta/argument_specs.yml) of the roles, and their values
    from Ansible.
  - Variables of the inventory, of the play, of C(--extra-vars) and of facts count. Parameters of a later role do not,
    because the plan is made before.
  - Reads the files on the controller that variables name, such as a recipe, a certificate or a patch.
  - Runs on the controller. The action plugin of this name does the work.
options: {}
seealso:
  - module: gb10.cluster.node_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Collect the values of all variables
  gb10.cluster.cluster_inputs:
  register: gb10_inputs

- name: Show whether the model store is used
  ansible.builtin.debug:
    msg: "{{ gb10_inputs.settings.model_store_enabled }}"
"""

RETURN = r"""
settings:
  description: The value of each variable, otherwise its default. Variables with C(no_log) are not in it.
  returned: success
  type: dict
refused:
  description:
    - Name, found and expected value of each variable that its role will refuse. A value with C(no_log) is not shown.
    - A value that refers to an undefined variable is left to its role, because a later task may define it.
  returned: success
  type: list
  elements: dict
variables:
  description: The names of all variables of the host, without defaults of roles.
  returned: success
  type: list
  elements: str
packages:
  description: The Debian packages that the roles need.
  returned: success
  type: list
  elements: str
recipe:
  description: C(name), C(path) and C(text) of the file of C(gb10_recipe), empty without one. The text is untrusted.
  returned: success
  type: dict
layers:
  description:
    - The layers of C(gb10_image_layers), then the recipe's mods, each with C(name), C(folder), C(digest), C(packages),
      C(network) and C(problem).
  returned: success
  type: list
  elements: dict
model:
  description: The value of C(gb10_model), otherwise the recipe's model.
  returned: success
  type: str
model_path:
  description: The model's folder on the nodes, empty without one.
  returned: success
  type: str
hub_model:
  description: C(name) and C(revision) of a model on Hugging Face Hub, empty for a model with a folder.
  returned: success
  type: dict
known_release:
  description: Whether this release knows the arguments of the vLLM in the lock.
  returned: success
  type: bool
build:
  description:
    - The variables of the role vllm_build, with the SHA-256 of its patches. On the head also that of its C(archives).
  returned: success
  type: dict
api:
  description: C(url), C(server_name) and C(endpoint) of the API, and C(client), the address for its certificate.
  returned: success
  type: dict
client:
  description: How clients reach the API, by C(endpoint), C(address), C(user), C(key_file) and C(ca_file) of the node.
  returned: success
  type: dict
certificates:
  description: The texts C(certificate) and C(ca) of the API on the head, without its key; empty without TLS.
  returned: success
  type: dict
key_problem:
  description: The error in C(gb10_api_key), without the key.
  returned: success
  type: str
tls:
  description: The problems, digest and end of validity of the head's certificate, without its key.
  returned: success
  type: dict
secrets:
  description: The names and problems of C(gb10_secret_env), without a value.
  returned: success
  type: dict
"""
