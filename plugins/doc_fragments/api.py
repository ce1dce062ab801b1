# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations


class ModuleDocFragment:
    """The arguments API and, as KEY, API_KEY of module_utils/common/argument_spec.py."""

    DOCUMENTATION = r"""
options:
  server_name:
    description: The name or address in the API's certificate, for an https address; empty for the host of that address.
    type: str
    default: ""
  ca_file:
    description: The CA on the host that must have issued the API's certificate. Read only for an https address.
    type: path
    default: /etc/gb10/tls/ca.crt
"""
    KEY = r"""
options:
  key_file:
    description: A file on the host with the API's key, empty if none. No output shows the key.
    type: path
    default: ""
  unit:
    description: The unit whose processes must own the API's port; otherwise the key is not sent.
    type: str
    default: gb10-vllm.service
"""
