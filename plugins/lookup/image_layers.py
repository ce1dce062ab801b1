# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup: the layers of a container image, with the digests of their folders on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: image_layers
short_description: Read the layers of a container image on the controller
version_added: 0.1.0
description:
  - Returns each layer of C(gb10_image_layers) and each mod of a recipe, with the digest of its folder.
  - A layer that cannot be read has a problem, which P(gb10.cluster.cluster_plan#filter) reports.
options:
  _terms:
    description: The layers, each a mapping with C(path) or C(packages), and C(network).
    required: true
  mods:
    description: The folders of mods in a recipe, relative to a folder above the recipe.
    type: list
    elements: str
    default: []
  recipe:
    description: The path of the recipe.
    type: str
    default: ''
  inventory:
    description: The folder at which relative paths of layers start.
    type: str
    default: ''
author:
  - gb10.cluster maintainers (@gb10-cluster)
"""

EXAMPLES = r"""
- name: Show the layers of an image
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.cluster.image_layers', {'path': 'mods/fix'}, inventory=inventory_dir) }}"
"""

RETURN = r"""
_raw:
  description: One mapping for each layer with C(name), C(folder), C(digest), C(packages), C(network) and C(problem).
  type: list
  elements: dict
"""

from typing import Any

from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_layers
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


class LookupModule(LookupBase):
    """Reads folders on the controller."""

    def run(self, terms: list[Any], variables: Any = None, **kwargs: Any) -> list[dict[str, Any]]:
        """Return the layers, the recipe's mods last."""
        self.set_options(var_options=variables, direct=kwargs)
        recipe, inventory = str(self.get_option("recipe")), str(self.get_option("inventory"))
        layers = [io_layers.of_inventory(plain_data(term), inventory) for term in terms]
        return layers + [io_layers.of_recipe(str(mod), recipe) for mod in self.get_option("mods")]
