# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an inventory file on the controller as values with positions, without Ansible's types."""

from __future__ import annotations

import yaml

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.inventory import checks, syntax
from ansible_collections.gb10.cluster.plugins.module_utils.inventory.schema import Items, Keys, Place, Text, Value

#: Characters of a file. PyYAML needs seconds for them.
MOST = 1 << 18


def plugin(text: str) -> str:
    """Return the plugin that a file configures, "" for another file."""
    if "plugin" not in text or len(text) > MOST:
        return ""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return ""
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return next((str(value.value) for key, value in pairs if key.value == "plugin"), "")


def problems(text: str, path: str) -> list[Problem]:
    """Return the faults of an inventory file; ``path`` is its name for messages."""
    if len(text) > MOST:
        return [Problem(path, f"more than {MOST} characters", "groups, hosts and variables", "divide the file")]
    try:
        # The loader in Python has other words than libyaml's, which some installations lack.
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        at, began = _place(error.problem_mark), _place(error.context_mark)
        stop = syntax.Stop(error.problem or "", at or began or Place(1, 1), error.context or "", began)
        return [syntax.explain(text, stop).problem(path)]
    except yaml.YAMLError:
        return [Problem(path, "a control character, or another encoding", "text in UTF-8", "save the file as UTF-8")]
    except RecursionError:
        return [Problem(path, "too many levels", "groups, hosts and variables", "compare a sample of inventories/")]
    found = _value(root, frozenset(), {}) if root is not None else Text(Place(1, 1), "")
    return [fault.problem(path) for fault in checks.check(found)]


def _place(mark: yaml.Mark | None) -> Place | None:
    return Place(mark.line + 1, mark.column + 1) if mark else None


def _value(node: yaml.Node, above: frozenset[int], known: dict[int, Value]) -> Value:
    """``above``: the nodes around this one, which an alias could repeat; ``known``: those that were read, because
    aliases of aliases would double them."""
    if id(node) in known:
        return Items(known[id(node)].place)
    place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    found: Value = Items(place)
    if isinstance(node, yaml.MappingNode) and id(node) not in above:
        inner = above | {id(node)}
        found = Keys(place, tuple((_key(key), _value(value, inner, known)) for key, value in node.value))
    elif isinstance(node, yaml.ScalarNode):
        found = Text(place, "" if node.tag == "tag:yaml.org,2002:null" else node.value)
    known[id(node)] = found
    return found


def _key(node: yaml.Node) -> Text:
    place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    return Text(place, node.value if isinstance(node, yaml.ScalarNode) else "")
