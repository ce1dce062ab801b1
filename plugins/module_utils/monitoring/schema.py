# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of monitoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class MonitoringSettings:
    """The variables of the role monitoring."""

    monitoring_enabled: bool
    monitoring_clients: Sequence[str]
    monitoring_port: int
    vllm_watchdog_mode: str
    vllm_watchdog_restarts_per_hour: int


@dataclass(frozen=True)
class Site:
    """Values outside of the plan: the cluster's name, each node's address for Prometheus, and the ages.

    ``golden``: the day of the last golden answers, such as "2026-11-26", "" if there are none.
    """

    cluster: str
    addresses: Mapping[str, str]
    golden: str = ""


@dataclass(frozen=True)
class ServerSettings:
    """The variables monitoring_server_* without the webhook. ``days``, ``size`` in GiB: limits of the storage."""

    port: int
    alerts_port: int
    clients: Sequence[str]
    days: int
    size: int


@dataclass(frozen=True)
class Counts:
    """Errors in the kernel's log since boot, by kind. ``last``: the sequence number of the last counted record."""

    boot: str = ""
    last: int = -1
    found: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One value of a metric in metrics.METRICS."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard. ``queries``: legend -> expression; ``unit``: Grafana's name of it.

    ``states``: value -> (text, color) of a panel with a row for each series.
    """

    title: str
    unit: str
    queries: Mapping[str, str]
    maximum: float | None = None
    states: Mapping[str, tuple[str, str]] = field(default_factory=dict)
