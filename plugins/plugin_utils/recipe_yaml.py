# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a recipe's YAML on the controller.

A recipe is untrusted: it has few values, and no aliases, tags or documents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import nvidia
from ansible_collections.gb10.cluster.plugins.plugin_utils import nvidia_catalog

#: The longest recipe of eugr/spark-vllm-docker has 9 kB.
_CHARACTERS = 65536
_NODES, _DEPTH = 1000, 6
#: Python refuses to print an integer of 4300 digits, which it reads from hexadecimal ones.
_NUMBER = re.compile(r"[-+]?0?[0-9xobA-Fa-f_.:]{100,}", re.ASCII)
_FIX = "correct the file; docs/recipes.md describes it"


def load(text: str, path: str) -> tuple[Any, list[Problem]]:
    """Return the document's plain data, or None and the problems; ``path`` is the file for messages."""
    if not text.strip():
        return None, [
            Problem(
                "gb10_recipe", f"{path} is not a readable file on the controller", "a recipe", "correct gb10_recipe"
            )
        ]
    if len(text) > _CHARACTERS:
        return None, [
            Problem("gb10_recipe", f"{path} has {len(text)} characters", f"at most {_CHARACTERS}", "use another file")
        ]
    try:
        refused = _refused(text)
        if refused:
            return None, [Problem("gb10_recipe", f"{path}, {refused}", "plain YAML: mappings, lists and values", _FIX)]
        # An empty document is a recipe without keys, and not the lack of a recipe.
        return yaml.safe_load(text) or {}, []
    except (yaml.YAMLError, ValueError, TypeError) as error:
        mark, why = (
            getattr(error, "problem_mark", None),
            getattr(error, "problem", None) or getattr(error, "reason", None),
        )
        where = f"line {mark.line + 1}: " if mark else ""
        found = f"{path}, {where}{why or type(error).__name__}"
        return None, [Problem("gb10_recipe", found, "valid YAML", _FIX)]


def document(recipe: Mapping[str, str]) -> tuple[Any, list[Problem]]:
    """Return the plain data of a recipe, and the problems. ``recipe``: see sources.recipe().

    One of NVIDIA's has the names of older measured recipes, and the data of the file with its measurements under that
    file's name, {} if that file is of another version of the recipe or cannot be read.
    """
    if recipe["problem"]:
        expected, fix = "a path, or a name in gb10_recipe_folder", "correct gb10_recipe or gb10_recipe_folder"
        if recipe["name"].startswith(nvidia_catalog.PREFIX):
            expected = "the name of one recipe in NVIDIA's catalog"
            fix = "set gb10_nvidia_recipes to a clone of NVIDIA/local-ai-inference-recipes, and use a name in it"
        return None, [Problem("gb10_recipe", recipe["problem"], expected, fix)]
    data, problems = load(recipe["text"], recipe["path"] or recipe["name"])
    if isinstance(data, dict):
        # A recipe cannot set values that come from the files next to it.
        data = {key: value for key, value in data.items() if key not in (nvidia.OTHERS, nvidia.PERFORMANCE)}
    if problems or not isinstance(data, dict) or "schema_version" not in data:
        return data, problems
    data = {**data, nvidia.OTHERS: recipe["others"]}
    if not recipe["measured"]:
        return data, []
    measured, refused = load(recipe["measured"], recipe["path"])
    same = not refused and isinstance(measured, dict) and measured.get("recipe_sha256") == nvidia.digest(recipe["text"])
    return {**data, nvidia.PERFORMANCE: measured if same else {}}, []


def _refused(text: str) -> str:
    """Return the first part of a YAML text that is refused, "" if there is none. It is parsed, but not constructed."""
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = f"line {event.start_mark.line + 1}" if event.start_mark else "the file"
        documents += isinstance(event, yaml.DocumentStartEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return f"{line}: an anchor or alias"
        if getattr(event, "tag", None):
            return f"{line}: a tag"
        if documents > 1:
            return f"{line}: a second document"
        if isinstance(event, yaml.ScalarEvent) and _NUMBER.fullmatch(event.value):
            return f"{line}: a number of {len(event.value)} characters"
        if nodes > _NODES or depth > _DEPTH:
            return f"{line}: more than {_NODES} values, or more than {_DEPTH} levels"
    return ""
