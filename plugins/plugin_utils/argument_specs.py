# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The argument specifications of this collection's roles, at any installation path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError

_ROLES = Path(__file__).parents[2] / "roles"
#: The roles of a cluster, whose variables the plan reads and whose prefixes are checked for typing errors. The lab is
#: left out: its prefix is too common a word.
CLUSTER = (
    "gb10",
    "qsfp_netplan",
    "peer_firewall",
    "host_guard",
    "flight_recorder",
    "vllm_build",
    "vllm_runtime",
    "vllm_patch",
    "model_store",
    "nccl_sm121_build",
    "ray_cluster",
    "vllm_serve",
    "vllm_watchdog",
    "vllm_fallback",
    "monitoring",
    "golden",
    "benchmark_model",
    "benchmark_all",
    "field_report",
    "gateway",
)
# Python's own loader takes ten times as long, in each run.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(role: str) -> dict[str, dict[str, Any]]:
    """Return the entry points of a role with their options. Raises AnsibleError for an unknown role."""
    try:
        text = (_ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    except OSError as error:
        raise AnsibleError(f"argument specification not found: {error}") from error
    entries: dict[str, dict[str, Any]] = yaml.load(text, Loader=_LOADER)["argument_specs"]
    return entries


def options() -> dict[str, dict[str, Any]]:
    """Return the variables of all roles of a cluster. Required ones are inputs that other roles set."""
    entries = (read(role)["main"].get("options", {}) for role in CLUSTER)
    return {name: option for entry in entries for name, option in entry.items() if not option.get("required")}


def of_cluster(name: str) -> bool:
    """Return whether a name has the prefix of one of these roles."""
    return name.startswith(tuple(f"{role}_" for role in CLUSTER))


def default(option: Mapping[str, Any]) -> Any:
    """Return the default of a variable, None for a template, which refers to the plan."""
    value = option.get("default")
    return None if isinstance(value, str) and "{{" in value else value


def known() -> dict[str, list[str]]:
    """Return role -> names of its public variables, of all entry points."""
    return {
        role: sorted({name for entry in read(role).values() for name in entry.get("options", {})}) for role in CLUSTER
    }
