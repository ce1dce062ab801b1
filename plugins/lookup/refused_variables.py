# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
name: refused_variables
short_description: The variables of a host whose values the argument_specs of roles refuse
version_added: 0.1.0
description:
  - Validates the host's variables of several roles of this collection at once, before any of these roles runs.
  - A value that refers to an undefined variable is left to its role, because a later task may define it.
options:
  _terms:
    description: Names of roles.
    type: list
    elements: str
    required: true
seealso:
  - plugin: gb10.cluster.public_variables
    plugin_type: lookup
author:
  - gb10.cluster maintainers (@gb10-cluster)
"""

EXAMPLES = r"""
- name: Show the refused variables of two roles
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.refused_variables', 'ray_cluster', 'vllm_serve', wantlist=true) }}"
"""

RETURN = r"""
_raw:
  description: Name, found and expected value of each refused variable. A value that its role marks C(no_log) is not in it.
  type: list
  elements: dict
"""

from typing import Any

from ansible.errors import AnsibleUndefinedVariable
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs


class LookupModule(LookupBase):
    """Validates the variables of a host."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[dict[str, str]]:
        """Return [{name, found, expected}]."""
        # Most hosts set variables of few roles.
        roles = [str(role) for role in terms if any(name.startswith(f"{role}_") for name in variables)]
        options = {name: option for role in roles for name, option in _options(role).items() if name in variables}
        found = []
        for name, option in options.items():
            try:
                value = self._templar.template(variables[name])  # type: ignore[union-attr]  # Ansible sets it.
            except AnsibleUndefinedVariable:
                continue
            if errors := ArgumentSpecValidator({name: option}).validate({name: value}).error_messages:
                found.append({"name": name, "found": _found(value, option, errors), "expected": _expected(option)})
        return found


def _options(role: str) -> dict[str, dict[str, Any]]:
    """Return the variables of a role's main entry point, without required inputs, which other roles set."""
    options = argument_specs.read(role).get("main", {}).get("options", {})
    return {name: option for name, option in options.items() if not option.get("required")}


def _found(value: Any, option: dict[str, Any], errors: list[str]) -> str:
    if option.get("no_log"):
        return "a value of another form"
    return repr(value) if isinstance(value, str | int | float) else "; ".join(errors)


def _expected(option: dict[str, Any]) -> str:
    if option.get("choices"):
        return f"one of {', '.join(map(str, option['choices']))}"
    elements = f" of {option['elements']}" if "elements" in option else ""
    return f"a value of type {option.get('type', 'str')}{elements}"
