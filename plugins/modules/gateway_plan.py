#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gateway_plan
short_description: Check the inputs of the gateway, and plan its settings
version_added: 0.1.0
description:
  - Reads the variables of the role gateway, the plans of the clusters in C(gateway_clusters), and what earlier tasks of
    the role read from their heads.
  - Fails with every problem. No result contains a key.
  - Runs on the controller. The action plugin of this name does the work.
options: {}
seealso:
  - module: gb10.cluster.gateway_service
  - module: gb10.cluster.gateway_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Plan the gateway
  gb10.cluster.gateway_plan:
  register: planned
"""

RETURN = r"""
lock:
  description: The text of the lock of the gateway's packages.
  returned: success
  type: str
environment:
  description: The folder of the Python environment with these packages.
  returned: success
  type: str
ids:
  description: The models, each as C(CLUSTER/MODEL).
  returned: success
  type: list
  elements: str
settings:
  description: The text of the file with the settings.
  returned: success
  type: str
certificate:
  description: The text of the file with the certificate, empty for HTTP.
  returned: success
  type: str
variables:
  description: The environment variable with the API key of each cluster that has one.
  returned: success
  type: dict
notes:
  description: A line for each warning about the certificate.
  returned: success
  type: list
  elements: str
"""
