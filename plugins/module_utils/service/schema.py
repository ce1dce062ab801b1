# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of planned services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: The watchdog's modes that restart. AUTO needs a witness: without one the rule may err on a load that it has not seen.
AUTO, RESTART = RESTARTING = ("auto", "restart")


@dataclass(frozen=True)
class ServiceSettings:
    """The roles' variables that services read."""

    flight_recorder_port: int
    ray_cluster_object_store_memory: int
    ray_cluster_args: Sequence[str]
    vllm_serve_drop_caches: bool
    vllm_serve_memory_floor: float
    vllm_serve_memory_guard: str
    vllm_serve_ray_timeout: int
    vllm_serve_start_timeout: int
    vllm_watchdog_interval: int
    vllm_watchdog_keep_evidence: int
    vllm_watchdog_mode: str
    vllm_watchdog_notify_command: Sequence[str]
    vllm_watchdog_port: int
    vllm_watchdog_restarts_per_hour: int
    vllm_watchdog_stall_seconds: int
    vllm_watchdog_witness_seconds: int


@dataclass(frozen=True)
class Learned:
    """Values that a run learns before it writes services: the SHA-256 of the service's ``token``, "" without one, and
    versions of secrets.

    Versions, because a short key could be guessed from its digest. ``secrets``: those of the secret variables of the
    nodes that matter.
    """

    token: str = ""
    api_key: str = ""
    secrets: Sequence[str] = ()


@dataclass(frozen=True)
class Service:
    """A service as a node has it: the unit's text with a placeholder for the digest of ``inputs``, and its files.

    ``files`` are entries of the module root_files: {path, content}, or {path, program} for a file below
    module_utils. Those of ``watched`` are launch inputs too.
    """

    name: str
    text: str
    inputs: Sequence[Any] = ()
    files: Sequence[Mapping[str, str]] = ()
    directories: Sequence[str] = ()
    watched: Sequence[str] = ()
