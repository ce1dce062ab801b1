#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gateway_service
short_description: Write the secrets of the gateway, and plan its service
version_added: 0.1.0
description:
  - Writes the keys of C(gateway_model_keys) and of the clusters in C(gateway_clusters) to a file that only root can
    read, with M(gb10.cluster.secret_environment).
  - Writes the private key of C(gateway_tls_key) next to the settings, if the plan has a certificate.
  - Neither the difference nor a result contains a key.
  - Returns the unit, the program and the settings, which a later task writes. A changed launch input changes the digest
    in the unit.
  - The action plugin of this name does the work.
options:
  plan:
    description: The result of M(gb10.cluster.gateway_plan).
    type: dict
    required: true
seealso:
  - module: gb10.cluster.gateway_plan
  - module: gb10.cluster.secret_environment
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Write the secrets of the gateway
  gb10.cluster.gateway_service:
    plan: "{{ planned }}"
  become: true
  no_log: true
  register: service

- name: Write the gateway and its unit
  gb10.cluster.root_files:
    files: "{{ service.written }}"
  become: true
"""

RETURN = r"""
version:
  description: Changes with the keys but reveals nothing about them. Empty without a key.
  returned: success
  type: str
unit:
  description: The unit's C(text), and the digest of its launch C(inputs), for M(gb10.cluster.systemd_unit_info).
  returned: success
  type: dict
files:
  description: The files that it runs or reads, as entries of the option C(files) of M(gb10.cluster.root_files).
  returned: success
  type: list
  elements: dict
directories:
  description: The folders of these files.
  returned: success
  type: list
  elements: str
written:
  description: The files and that of the unit.
  returned: success
  type: list
  elements: dict
"""
