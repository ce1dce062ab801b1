#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: monitoring_server_plan
short_description: Plan Prometheus and Alertmanager for the clusters of an inventory
version_added: 0.1.0
description:
  - Returns the configuration and units for the clusters with C(monitoring_enabled), from their facts C(gb10_plan) and
    C(gb10_inputs). Fails with every problem.
  - Reads C(monitoring_server_webhook) only to check it. No result contains it.
  - Changes nothing. The action plugin of this name does the work on the controller.
options:
  heads:
    description: The clusters, as a free-form mapping of a name to the head.
    type: dict
    required: true
  port:
    description: The port of Prometheus.
    type: int
    required: true
  alerts_port:
    description: The port of Alertmanager.
    type: int
    required: true
  clients:
    description: Addresses and networks that reach Prometheus; empty for this host alone.
    type: list
    elements: str
    required: true
  days:
    description: How long metrics are kept.
    type: int
    required: true
  size:
    description: Maximum size of the stored metrics in GiB.
    type: int
    required: true
seealso:
  - module: gb10.cluster.monitoring_plan
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Plan Prometheus
  gb10.cluster.monitoring_server_plan:
    heads: {sparks: spark1}
    port: 9090
    alerts_port: 9093
    clients: []
    days: 30
    size: 8
  register: planned
"""

RETURN = r"""
files:
  description: The files and units, as entries of the option C(files) of M(gb10.cluster.root_files).
  returned: success
  type: list
  elements: dict
grafana:
  description: The same for a Grafana on the host.
  returned: success
  type: list
  elements: dict
units:
  description: The units, each with C(name), C(text), C(inputs), its C(port) and the C(variable) of that.
  returned: success
  type: list
  elements: dict
clusters:
  description: The clusters with metrics, each with its C(head) and the name of its CA's file, C(ca).
  returned: success
  type: list
  elements: dict
notes:
  description: Values that Prometheus cannot read, and those that are lost with a node.
  returned: success
  type: list
  elements: str
"""
