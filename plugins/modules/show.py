#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: show
short_description: Print lines of text
version_added: 0.1.0
description:
  - Prints text as a person reads it, without the quotes and commas of a JSON list.
  - Prints the escape sequence of a control character instead of the character, because a line may come from another
    machine.
  - Runs on the controller. The action plugin of this name does the work.
options:
  lines:
    description: The lines as a list, or a text of several lines.
    type: raw
    required: true
  last:
    description: Whether the lines are the end of the run, after its recap. This needs the callback
      P(gb10.cluster.brief#callback).
    type: bool
    default: false
seealso:
  - module: gb10.cluster.cluster_status_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Show the plan
  gb10.cluster.show:
    lines: "{{ result.lines }}"
  run_once: true
"""

RETURN = r"""
msg:
  description: The printed lines.
  returned: success
  type: list
  elements: str
last:
  description: The option O(last).
  returned: success
  type: bool
"""
