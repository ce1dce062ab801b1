# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A dashboard of Grafana for any number of clusters and nodes, from a table of panels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import Panel

_NODE = 'cluster=~"$cluster",node=~"$node"'
_CLUSTER = 'cluster=~"$cluster"'
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}

#: Row -> its panels. The memory has no percent, and no panel uses values that a GB10 reports as 0 or N/A.
ROWS: Mapping[str, Sequence[Panel]] = {
    "State": (
        Panel(
            "Alerts",
            "short",
            {"{{alertname}} {{node}} {{unit}}": f'ALERTS{{alertstate="firing",{_CLUSTER}}}'},
            states={"1": ("fires", "red")},
        ),
        Panel(
            "Services",
            "short",
            {"{{node}} {{unit}}": f"gb10_service_active{{{_NODE}}}"},
            states={"0": ("stopped", "red"), "1": ("runs", "green")},
        ),
        Panel(
            "Watchdog and restarts",
            "short",
            {
                "seconds without progress {{cluster}}": f"gb10_watchdog_stalled_seconds{{{_CLUSTER}}}",
                "by the watchdog in an hour {{cluster}}": f"gb10_watchdog_restarts{{{_CLUSTER}}}",
                "by systemd in an hour {{node}}": "sum by (cluster, node) "
                f"(increase(gb10_service_restarts_total{{{_NODE}}}[1h]))",
            },
        ),
        Panel(
            "Rest",
            "short",
            {"{{cluster}}": f"gb10_resting{{{_CLUSTER}}}"},
            states={"0": ("serves", "green"), "1": ("rests", "blue")},
        ),
        Panel("Last start", "s", {"{{part}} {{cluster}}": f"gb10_start_seconds{{{_CLUSTER}}}"}),
    ),
    "Model": (
        Panel(
            "Tokens per second",
            "short",
            {
                "generated {{cluster}}": f"gb10:generated_tokens:rate1m{{{_CLUSTER}}}",
                "read {{cluster}}": f"gb10:read_tokens:rate1m{{{_CLUSTER}}}",
            },
        ),
        Panel(
            "Requests",
            "short",
            {
                "running {{cluster}}": f"sum by (cluster) (vllm:num_requests_running{{{_CLUSTER}}})",
                "waiting {{cluster}}": f"sum by (cluster) (vllm:num_requests_waiting{{{_CLUSTER}}})",
                "preempted {{cluster}}": f"sum by (cluster) (increase(vllm:num_preemptions_total{{{_CLUSTER}}}[1m]))",
            },
        ),
        Panel(
            "Time to first token, 95 %",
            "s",
            {
                "{{cluster}}": "histogram_quantile(0.95, sum by (cluster, le) "
                f"(rate(vllm:time_to_first_token_seconds_bucket{{{_CLUSTER}}}[5m])))"
            },
        ),
        Panel(
            "KV cache and prefix cache",
            "percentunit",
            {
                "KV cache used {{cluster}}": f"max by (cluster) (vllm:kv_cache_usage_perc{{{_CLUSTER}}})",
                "prefix hits {{cluster}}": f"gb10:prefix_cache_hits:ratio5m{{{_CLUSTER}}}",
                "draft accepted {{cluster}}": f"gb10:draft_accepted:ratio5m{{{_CLUSTER}}}",
            },
            1,
        ),
        Panel("Tokens of a step", "short", {"{{cluster}}": f"gb10:draft_tokens_of_step:mean5m{{{_CLUSTER}}}"}),
        Panel(
            "Tokens per second per watt",
            "short",
            {"{{cluster}}": f"gb10:generated_tokens_of_watt:rate1m{{{_CLUSTER}}}"},
        ),
    ),
    "GPU": (
        Panel("Temperature", "celsius", {"{{node}}": f"gb10_gpu_temperature_celsius{{{_NODE}}}"}),
        Panel("Power", "watt", {"{{node}}": f"gb10_gpu_power_watts{{{_NODE}}}"}),
        Panel("SM clock", "hertz", {"{{node}}": f"gb10_gpu_sm_clock_hertz{{{_NODE}}}"}),
        Panel("Utilization", "percentunit", {"{{node}}": f"gb10_gpu_utilization_ratio{{{_NODE}}}"}, 1),
        Panel(
            "Reasons for a lower clock",
            "short",
            {"{{node}} {{reason}}": f"gb10_gpu_clock_reason{{{_NODE}}} > 0"},
            states={"1": ("active", "orange")},
        ),
        Panel(
            "Errors of the driver in an hour",
            "short",
            {"{{node}} {{kind}}": f"increase(gb10_kernel_errors_total{{{_NODE}}}[1h])"},
        ),
    ),
    "Node": (
        Panel("Available memory", "bytes", {"{{node}}": f"node_memory_MemAvailable_bytes{{{_NODE}}}"}),
        # Data that a node receives is sent by another one.
        Panel(
            "Sent on the fabric",
            "Bps",
            {
                "{{node}} {{device}}": f"rate(node_network_transmit_bytes_total{{{_NODE}}}[1m]) "
                "and on (cluster, node, device) gb10_link_planned_mtu_bytes"
            },
        ),
        # RoCE bypasses the counters of the interface.
        Panel(
            "Sent by RDMA",
            "Bps",
            {"{{node}} {{device}}": f"rate(node_infiniband_port_data_transmitted_bytes_total{{{_NODE}}}[1m])"},
        ),
        Panel(
            "Free disk",
            "bytes",
            {"{{node}} {{mountpoint}}": f'node_filesystem_avail_bytes{{{_NODE},fstype=~"ext4|xfs|btrfs|zfs"}}'},
        ),
        Panel(
            "Days",
            "d",
            {
                "certificate expires {{cluster}}": "(gb10_certificate_expiry_timestamp_seconds"
                f"{{{_CLUSTER}}} - time()) / 86400",
                "golden answers {{cluster}}": f"(time() - gb10_golden_timestamp_seconds{{{_CLUSTER}}}) / 86400",
            },
        ),
    ),
}


def text() -> str:
    """Return the dashboard as JSON that Grafana imports. It asks for the data source."""
    return json.dumps(document(), indent=1) + "\n"


def document() -> dict[str, Any]:
    """Return the dashboard as data."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, entries in ROWS.items():
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "gridPos": _place(top, 0, 24, 1)})
        for index, panel in enumerate(entries):
            line, column = divmod(index, _COLUMNS)
            place = _place(top + 1 + line * _HEIGHT, column * _WIDTH, _WIDTH, _HEIGHT)
            panels.append(_panel(len(panels) + 1, panel, place))
        top += 1 + -(-len(entries) // _COLUMNS) * _HEIGHT
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": "GB10 clusters",
        "uid": "gb10-cluster",
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                source,
                _variable("cluster", "label_values(gb10_version_info, cluster)"),
                _variable("node", 'label_values(gb10_version_info{cluster=~"$cluster"}, node)'),
            ]
        },
        "panels": panels,
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    choice = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {"name": name, "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2, **choice}


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    limits = {"min": 0, **({} if panel.maximum is None else {"max": panel.maximum})}
    # Lines of states would hide each other.
    values = {value: {"text": text, "color": color} for value, (text, color) in panel.states.items()}
    drawn = {"mappings": [{"type": "value", "options": values}]} if values else {}
    return {
        "id": number,
        "type": "state-timeline" if values else "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, **limits, **drawn}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for index, (legend, expr) in enumerate(panel.queries.items())
        ],
    }


def _place(top: int, left: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}
