# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of a recipe, and of its use in a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Measured

VARIABLE = "gb10_recipe"
#: The check of each key's value, and the expected value in words.
Forms: TypeAlias = Mapping[str, tuple[Callable[[object], bool], str]]
_IMAGE = re.compile(r"[A-Za-z0-9][\w./:-]*(@sha256:[0-9a-f]{64})?", re.ASCII)
#: Variables of the network and of Ray, which the plan sets for each node.
NETWORK = re.compile(
    r"VLLM_HOST_IP|HOST_IP|MASTER_(ADDR|PORT)|RAY_\w+|NCCL_(SOCKET_IFNAME|IB_\w+|NET\w*)|(GLOO|TP)_SOCKET_IFNAME"
    r"|UCX_NET_DEVICES|OMPI_MCA_\w+|MN_IF_NAME|(ETH|IB)_IF"
)


def problem(key: str, found: str, expected: str, fix: str) -> Problem:
    """Return the problem of a recipe's key, "" for the whole recipe."""
    return Problem(f"{VARIABLE}.{key}" if key else VARIABLE, found, expected, fix)


def is_text(value: object) -> bool:
    """Return whether a value of a recipe is a text."""
    return isinstance(value, str)


def is_image(value: object) -> bool:
    """Return whether a value of a recipe is the name of an image."""
    return isinstance(value, str) and bool(_IMAGE.fullmatch(value))


@dataclass(frozen=True)
class Recipe:
    """A recipe whose command was split. ``model``: the one that ``vllm serve`` gets; ``args``: the words after it.

    ``container``: the image's name, which the other project's builder often makes on the machine; ``image``: the
    published one (pull_image), "" without it. ``mods`` and ``build_args`` are that builder's.
    ``min_nodes`` and ``max_nodes``: the fewest and the most nodes, 0 without a limit. ``about``: text for people.
    ``keys``: the recipe's key of the command, and of each variable that is not in env. ``measured``: the source's
    figures.
    """

    name: str
    model: str
    args: tuple[str, ...]
    environment: Mapping[str, str]
    container: str
    image: str
    mods: tuple[str, ...]
    build_args: tuple[str, ...]
    cluster_only: bool
    solo_only: bool
    about: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()
    min_nodes: int = 0
    max_nodes: int = 0
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def command_path(self) -> str:
        """The place of the command, for messages."""
        return f"{VARIABLE}.{self.keys.get('command', 'command')}"

    def variable_path(self, name: str) -> str:
        """Return the place of the mapping or the command that sets a variable, for messages."""
        return f"{VARIABLE}.{self.keys.get(name, 'env')}"


@dataclass(frozen=True)
class Use:
    """A recipe in a plan. ``settings``: values by variable's name; ``args`` and ``environment``: the rest, for vLLM.

    ``model``, ``revision`` and ``reasoning``: the recipe's own, whatever the inventory sets. ``about``: text for
    people, with each value that was replaced and why. ``args_path``, ``environment_paths``: the places of the arguments
    and of each variable. ``measured``: the source's figures.
    """

    model: str
    revision: str
    reasoning: bool
    settings: Mapping[str, Any]
    args: tuple[str, ...]
    environment: Mapping[str, str]
    about: Sequence[str]
    args_path: str
    environment_paths: Mapping[str, str]
    measured: Sequence[Measured] = ()
