# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations


class ModuleDocFragment:
    """The arguments in module_utils/common/argument_spec.py: API and, as KEY, API_KEY."""

    DOCUMENTATION = r"""
options:
  server_name:
    description: The name or address in the API's certificate, for an address that begins with https; empty for the address's own.
    type: str
    default: ""
  ca_file:
    description: The CA on the host that the API's certificate must come from. Read for an address that begins with https alone.
    type: path
    default: /etc/gb10/tls/ca.crt
"""
    KEY = r"""
options:
  key_file:
    description: A file on the host with the API's key, empty if there is none. The key appears nowhere.
    type: path
    default: ""
  unit:
    description: The unit whose processes must hold the API's port; to others the key is not sent.
    type: str
    default: gb10-vllm.service
"""
