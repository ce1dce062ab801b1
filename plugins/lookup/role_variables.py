# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
name: role_variables
short_description: The values of a role's variables before the role runs
version_added: 0.1.0
description:
  - Returns the host's value of each variable, otherwise the default in C(meta/argument_specs.yml) of its role.
options:
  _terms:
    description: Names of variables.
    type: list
    elements: str
    required: true
  role:
    description: The role of this collection that has the variables.
    type: str
    required: true
seealso:
  - module: gb10.cluster.cluster_plan
author:
  - gb10.cluster maintainers (@gb10-cluster)
"""

EXAMPLES = r"""
- name: Show the packages that the role will install
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.role_variables', 'vllm_runtime_packages', role='vllm_runtime') }}"
"""

RETURN = r"""
_raw:
  description: The values, in order.
  type: list
  elements: raw
"""

from typing import Any

from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs


class LookupModule(LookupBase):
    """Reads the variables of the host and the argument specification of the role."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Return the values."""
        self.set_options(var_options=variables, direct=kwargs)
        options = argument_specs.read(self.get_option("role"))["main"]["options"]
        return [
            self._value(variables[name], options[name]) if name in variables else options[name].get("default")
            for name in terms
        ]

    def _value(self, given: Any, option: dict[str, Any]) -> Any:
        """Return a templated value; a text for a list, such as from the command line, is split as Ansible does."""
        value = self._templar.template(given)  # type: ignore[union-attr]  # Ansible sets it.
        return (
            [word.strip() for word in value.split(",")]
            if isinstance(value, str) and option.get("type") == "list"
            else value
        )
