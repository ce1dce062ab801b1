# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
name: public_variables
short_description: The public variables of roles, from their argument_specs
version_added: 0.1.0
description:
  - Reads C(meta/argument_specs.yml) of the named roles of this collection and returns one mapping of role to variable names.
options:
  _terms:
    description: Names of roles.
    type: list
    elements: str
    required: true
author:
  - gb10.cluster maintainers (@gb10-cluster)
"""

EXAMPLES = r"""
- name: Show the public variables of two roles
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.public_variables', 'ray_cluster', 'vllm_serve') }}"
"""

RETURN = r"""
_raw:
  description: One mapping of role to the names of its public variables.
  type: list
  elements: dict
"""

from typing import Any

from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs


class LookupModule(LookupBase):
    """Reads the argument specifications of roles."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[dict[str, list[str]]]:
        """Return [{role: [names]}]."""
        return [{str(role): _names(str(role)) for role in terms}]


def _names(role: str) -> list[str]:
    return sorted({name for entry in argument_specs.read(role).values() for name in entry.get("options", {})})
