# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
name: hosts
short_description: An inventory file in YAML, verified line by line
version_added: 0.1.0
description:
  - Reads what Ansible's own plugin C(yaml) reads, after a check of the file.
  - A file that is no valid YAML, or in which a group, a host or a variable has a wrong name or place, ends the run. The
    report has file, line and column, and nothing else is printed. Ansible alone would warn, and go on without the file.
  - The collection's C(ansible.cfg) enables it for files with the extensions C(yml) and C(yaml). Only a file whose key
    C(plugin) names another enabled plugin belongs to that plugin.
author: gb10.cluster maintainers (@gb10-cluster)
requirements:
  - enabled in C(ansible.cfg), section C(inventory)
"""

EXAMPLES = r"""
# ansible.cfg
# [inventory]
# enable_plugins = gb10.cluster.hosts, host_list, yaml
# ignore_patterns = ^(?!hosts[^/]*\.ya?ml$)
#
# inventories/two-spark/hosts.yml
gb10_cluster:
  children:
    head:
      hosts:
        spark1: {ansible_host: 192.168.1.11, ansible_user: nvidia}
    worker:
      hosts:
        spark2: {ansible_host: 192.168.1.12, ansible_user: nvidia}
"""

import os
import sys
from typing import Any

from ansible import constants
from ansible.plugins.inventory.yaml import InventoryModule as YamlInventory

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.plugin_utils import inventory_yaml
from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import printable, wrapped

#: What ansible-playbook returns for an inventory or a playbook that it cannot read.
_UNREADABLE = 4
_MOST = 4


class InventoryModule(YamlInventory):
    """Ansible's YAML inventory, after the check."""

    NAME = "gb10.cluster.hosts"

    def verify_file(self, path: str) -> bool:
        """Whether the file is one for this plugin."""
        if not path.endswith((".yml", ".yaml")) or not os.path.isfile(path):
            return False
        other = inventory_yaml.plugin(_text(path))
        return not (other and {other, "auto"}.intersection(constants.INVENTORY_ENABLED))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Read the file, or end the run with its faults."""
        text = _text(path)
        # Ansible alone can decrypt a whole file.
        found = [] if text.startswith("$ANSIBLE_VAULT;") else inventory_yaml.problems(text, _shown(path))
        if found:
            width = int(self.display.columns or 80) if sys.stderr.isatty() else sys.maxsize
            for line in map(printable, report(found, _MOST).splitlines()):
                self.display.display(wrapped(line, line[: -len(line.lstrip())], width), stderr=True)
            # An exception of a plugin is a warning for Ansible, which then goes on without the file.
            raise SystemExit(_UNREADABLE)
        super().parse(inventory, loader, path, cache=cache)  # type: ignore[no-untyped-call]


def _shown(path: str) -> str:
    """Return the path as a person in this folder writes it."""
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(inventory_yaml.MOST + 1)
