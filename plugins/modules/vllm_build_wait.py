#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_build_wait
short_description: Wait for a build of vLLM, and show its progress
version_added: 0.1.0
description:
  - Polls M(gb10.cluster.vllm_build_info) on the host and shows the finished steps, the duration and an estimate.
  - The build continues when this run is interrupted.
  - This is an action plugin that runs on the controller; the module file contains only its documentation.
options:
  store:
    description: The store of builds on the host.
    type: path
    required: true
  name:
    description: The name of the build.
    type: str
    required: true
seealso:
  - module: gb10.cluster.vllm_build
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Wait for the build of vLLM
  gb10.cluster.vllm_build_wait:
    store: /opt/gb10/build
    name: 0.33.0-0123456789ab
  become: true
"""

RETURN = r"""
line:
  description: The last progress.
  returned: success
  type: str
"""
