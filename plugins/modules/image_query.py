#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_query
short_description: Return the commands that query a container image
version_added: 0.1.0
description:
  - Each command runs an unprivileged container without network, with the engine of the fact C(gb10_plan).
  - Runs on the controller. The action plugin of this name does the work.
options:
  image:
    description: The image's ID, or the name of an image of the plan below a layer. By default the plan's image that the
      role C(vllm_runtime) found or provided on the head. The action then fails if this node knows another image of that
      name.
    type: str
  python:
    description: The interpreter inside the image that runs vLLM.
    type: str
    required: true
seealso:
  - module: gb10.cluster.vllm_arguments_info
  - module: gb10.cluster.vllm_gpu_probe
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Determine how the image is queried
  gb10.cluster.image_query:
    image: "{{ image.image_id }}"
    python: python3
  register: query
"""

RETURN = r"""
image_id:
  description: The image's ID on the head, 64 hexadecimal digits; empty if check mode has not fetched it.
  returned: without O(image)
  type: str
files:
  description: The ID by the image's name, for the record of this node; empty without an ID.
  returned: without O(image)
  type: dict
recorded:
  description: Whether this node has recorded this ID.
  returned: without O(image)
  type: bool
argv:
  description: The command that runs the interpreter; its further arguments are the interpreter's.
  returned: with an image
  type: list
  elements: str
gpu_argv:
  description: The same with the GPU.
  returned: with an image
  type: list
  elements: str
releases_argv:
  description: The command that prints the releases of vLLM, torch and Python in the image as a JSON object.
  returned: with an image
  type: list
  elements: str
"""
