# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the services of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.service import guards, ranks, recorder
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, Service, ServiceSettings

_SERVICES: Mapping[str, Callable[[Plan, ServiceSettings, Learned], Service]] = {
    "fallback": ranks.fallback,
    "flight_recorder": recorder.recorder,
    "memory_guard": lambda plan, settings, _learned: guards.memory_guard(plan, settings),
    "ray": ranks.ray,
    "vllm": ranks.vllm,
    "watchdog": guards.watchdog,
}


def of_node(plan: Plan, name: str, settings: ServiceSettings, learned: Learned) -> Service:
    """Return a service of the plan's node: fallback, flight_recorder, memory_guard, ray, vllm or watchdog."""
    return _SERVICES[name](plan, settings, learned)
