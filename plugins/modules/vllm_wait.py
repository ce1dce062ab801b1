#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_wait
short_description: Wait for a vLLM service with progress, and stop early with the root cause
version_added: 0.1.0
description:
  - Polls M(gb10.cluster.vllm_info) on the host and shows each new step of the start while waiting.
  - Stops after a failed start with the first error of the log that is not an echo of another.
  - Also stops after a TLS verification error.
  - An action plugin on the controller implements it; the module only contains this documentation.
options:
  name:
    description: The unit.
    type: str
    default: gb10-vllm.service
  url:
    description: The API's address, without path.
    type: str
    required: true
  timeout:
    description: Maximum seconds until the API is healthy.
    type: int
    required: true
  restarts:
    description: Number of failed starts to ignore. 1 suits a service that may be stopping after an earlier fault.
    type: int
    default: 0
seealso:
  - module: gb10.cluster.vllm_info
  - module: gb10.cluster.vllm_smoke_test
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
  - gb10.cluster.api
"""

EXAMPLES = r"""
- name: Wait for the model
  gb10.cluster.vllm_wait:
    url: http://127.0.0.1:8000
    timeout: 2400
  become: true
"""

RETURN = r"""
ready_after:
  description: Seconds from the start of the process until the API was up, null if the log does not show it.
  returned: success
  type: float
"""
