# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup: the digests of files on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: file_digests
short_description: Compute the SHA-256 of files on the controller
version_added: 0.1.0
description:
  - Returns the absolute path and the SHA-256 of each file.
  - The digest of a file that cannot be read is empty, which M(gb10.cluster.cluster_plan) reports.
options:
  _terms:
    description: The paths.
    required: true
  inventory:
    description: The folder at which relative paths start.
    type: str
    default: ''
author:
  - gb10.cluster maintainers (@gb10-cluster)
"""

EXAMPLES = r"""
- name: Show the digest of a patch
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.file_digests', 'fix.patch', inventory=inventory_dir) }}"
"""

RETURN = r"""
_raw:
  description: One mapping for each file with C(path) and C(sha256).
  type: list
  elements: dict
"""

from typing import Any

from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.plugin_utils import sources


class LookupModule(LookupBase):
    """Reads files on the controller."""

    def run(self, terms: list[Any], variables: Any = None, **kwargs: Any) -> list[dict[str, Any]]:
        """Return the digests in the order of the paths."""
        self.set_options(var_options=variables, direct=kwargs)
        inventory = str(self.get_option("inventory"))
        return sources.digests(terms, inventory)
