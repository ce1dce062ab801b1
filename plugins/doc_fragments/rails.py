# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations


class ModuleDocFragment:
    """The arguments RAILS of module_utils/common/argument_spec.py."""

    DOCUMENTATION = r"""
options:
  rails:
    description: The node's rails, as in the plan.
    type: list
    elements: dict
    required: true
    suboptions:
      interface:
        description: The network device.
        type: str
        required: true
      hca:
        description: The RDMA device of the interface.
        type: str
      address:
        description: The node's own address with prefix length.
        type: str
        required: true
      peers:
        description: Name of each peer and its address on this rail.
        type: dict
        required: true
      macs:
        description: Name of each peer and the hardware address of its device on this rail, if known.
        type: dict
        default: {}
  mtu:
    description: MTU of the fabric in bytes.
    type: int
    required: true
"""
