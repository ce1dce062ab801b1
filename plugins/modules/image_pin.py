#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_pin
short_description: Decide which image the tag of the plan means
version_added: 0.1.0
description:
  - A tag can be moved to another image, so it stays pinned to the image of its first pull.
  - Fails if this node has recorded another image of the tag in the fact C(gb10_plan).
  - With O(fetched), returns the pins with the image that the head fetched.
  - Runs on the controller. The action plugin of this name does the work.
options:
  fetched:
    description: The variable of the head with the registered result of M(gb10.cluster.container_image) for the tag.
    type: str
  update:
    description: Whether another image of the tag is accepted.
    type: bool
seealso:
  - module: gb10.cluster.container_image
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Determine the pins of tags
  gb10.cluster.image_pin:
    fetched: image
  register: pinned
"""

RETURN = r"""
pins:
  description: The C(image_id) and C(digest) by tag, for the head's record.
  returned: with O(fetched)
  type: dict
news:
  description: Whether the pins differ from the plan's.
  returned: with O(fetched)
  type: bool
"""
