#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: monitoring_plan
short_description: Plan the metrics of a node, and the files of Prometheus and Grafana
version_added: 0.1.0
description:
  - Returns the units of the node exporter and of the collector, and for the head's cluster a scrape configuration,
    rules and a dashboard.
  - Reads C(gb10_plan), the settings of C(gb10_inputs), and the result of the last golden answers on the controller.
  - Changes nothing. The action plugin of this name does the work on the controller.
options:
  cluster:
    description: The name of the cluster in labels. An inventory's only cluster has none, and is C(gb10).
    type: str
    default: ""
  golden_result:
    description: The file of the last golden answers on the controller.
    type: path
    required: true
seealso:
  - module: gb10.cluster.root_files
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Plan the metrics
  gb10.cluster.monitoring_plan:
    cluster: sparks
    golden_result: "{{ inventory_dir }}/.gb10/golden_result.json"
  register: planned

- name: Write the units and the collector
  gb10.cluster.root_files:
    files: "{{ planned.files }}"
  become: true
"""

RETURN = r"""
files:
  description: The files of the node, as entries of the option C(files) of M(gb10.cluster.root_files).
  returned: success
  type: list
  elements: dict
unit:
  description: The unit of the node exporter, as the option of M(gb10.cluster.systemd_unit_info).
  returned: success
  type: dict
settings:
  description: The entry of C(files) with the collector's settings.
  returned: success
  type: list
  elements: dict
ca:
  description: The name of the CA's file next to the scrape configuration.
  returned: success
  type: str
written:
  description: Whether the node has the unit of the node exporter, from the start of the run.
  returned: success
  type: bool
controller:
  description: The files for Prometheus and Grafana, each with C(name) and C(content). Empty except on the head.
  returned: success
  type: list
  elements: dict
notes:
  description: What Prometheus cannot read with these settings. Empty except on the head.
  returned: success
  type: list
  elements: str
"""
