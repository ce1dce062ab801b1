# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recording and alert rules of Prometheus for the states that owners of a GB10 lost time with."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import Alert, Recording

_GIB = 1 << 30
_DAY = 86400
#: The base of the pages in the alerts.
PAGES = "https://github.com/gb10-cluster/gb10.cluster/blob/main/docs"


def _rate(name: str, span: str = "5m") -> str:
    return f"sum by (cluster) (rate(vllm:{name}[{span}]))"


RECORDINGS: Sequence[Recording] = (
    Recording(
        "gb10:prefix_cache_hits:ratio5m", f"{_rate('prefix_cache_hits_total')} / {_rate('prefix_cache_queries_total')}"
    ),
    Recording(
        "gb10:draft_accepted:ratio5m",
        f"{_rate('spec_decode_num_accepted_tokens_total')} / {_rate('spec_decode_num_draft_tokens_total')}",
    ),
    # Each step also has one token of the model itself.
    Recording(
        "gb10:draft_tokens_of_step:mean5m",
        f"1 + {_rate('spec_decode_num_accepted_tokens_total')} / {_rate('spec_decode_num_drafts_total')}",
    ),
    Recording("gb10:generated_tokens:rate1m", _rate("generation_tokens_total", "1m")),
    Recording("gb10:read_tokens:rate1m", _rate("prompt_tokens_total", "1m")),
    Recording(
        "gb10:generated_tokens_of_watt:rate1m",
        f"{_rate('generation_tokens_total', '1m')} / sum by (cluster) (gb10_gpu_power_watts)",
    ),
)

#: Thresholds of owners and of this collection; docs/monitoring.md has the sources. Memory is absolute: 10 % is normal.
ALERTS: Sequence[Alert] = (
    Alert(
        "GB10MemoryLow",
        f"node_memory_MemAvailable_bytes < {8 * _GIB}",
        "1m",
        "warning",
        "{{ $labels.node }} has {{ $value | humanize1024 }}B of memory left",
        "End other programs on the node, or raise gb10_memory_reserve",
        "reliability.md",
    ),
    Alert(
        "GB10MemoryCritical",
        f"node_memory_MemAvailable_bytes < {4 * _GIB}",
        "15s",
        "critical",
        "{{ $labels.node }} has {{ $value | humanize1024 }}B of memory left: a GB10 without memory freezes",
        "Run playbooks/stop.yml now, then raise gb10_memory_reserve",
        "reliability.md",
    ),
    # A step of a chunked prefill only changes the use of the KV cache.
    Alert(
        "GB10EngineStalled",
        "sum by (cluster, node) (min_over_time(vllm:num_requests_running[2m])) > 0 "
        "and sum by (cluster, node) (increase(vllm:iteration_tokens_total_count[2m])) == 0 "
        "and sum by (cluster, node) (changes(vllm:kv_cache_usage_perc[2m])) == 0",
        "30s",
        "critical",
        "{{ $value }} requests run on {{ $labels.cluster }}, and no token appears",
        "Read the evidence of the watchdog, or set vllm_watchdog_mode: restart",
        "reliability.md#watchdog",
    ),
    Alert(
        "GB10GpuHot",
        "gb10_gpu_temperature_celsius > 85",
        "2m",
        "warning",
        "The GPU of {{ $labels.node }} has {{ $value }} degrees Celsius",
        "Give the node more air",
        "verification.md#temperature-high",
    ),
    Alert(
        "GB10GpuTooHot",
        "gb10_gpu_temperature_celsius > 90",
        "30s",
        "critical",
        "The GPU of {{ $labels.node }} has {{ $value }} degrees Celsius, where it slows down or the node powers off",
        "Reduce the load, and set host_guard_gpu_clock: 2100",
        "verification.md#temperature-high",
    ),
    Alert(
        "GB10ClockStuck",
        "gb10_gpu_sm_clock_hertz < 1e9 and on (cluster, node, gpu) gb10_gpu_utilization_ratio > 0.8",
        "2m",
        "warning",
        "The GPU of {{ $labels.node }} runs at {{ $value | humanize }}Hz under load",
        "Shut the node down, and unplug its power supply for a minute",
        "verification.md#gpu-clock-stuck",
    ),
    Alert(
        "GB10PowerStuck",
        "gb10_gpu_power_watts < 30 and on (cluster, node, gpu) gb10_gpu_utilization_ratio > 0.9",
        "2m",
        "warning",
        "The GPU of {{ $labels.node }} takes {{ $value }} W under load",
        "Shut the node down, and unplug its power supply for a minute",
        "verification.md#gpu-clock-stuck",
    ),
    Alert(
        "GB10NodeGone",
        'up{job="gb10-node"} == 0',
        "1m",
        "critical",
        "{{ $labels.node }} does not answer",
        "Open the node's console, and power it off and on if it is frozen",
        "reliability.md",
    ),
    Alert(
        "GB10ServerGone",
        'up{job="gb10-vllm"} == 0',
        "2m",
        "critical",
        "vLLM on {{ $labels.node }} does not answer",
        "Run playbooks/status.yml",
        "operations.md",
    ),
    Alert(
        "GB10RankGone",
        "gb10_service_active == 0",
        "2m",
        "critical",
        "{{ $labels.unit }} does not run on {{ $labels.node }}",
        "Run playbooks/status.yml, then site.yml",
        "operations.md",
    ),
    Alert(
        "GB10Unmeasured",
        'gb10_gpu_readable == 0 or time() - node_textfile_mtime_seconds{file=~".*/gb10.prom"} > 120',
        "1m",
        "warning",
        "The GPU's metrics of {{ $labels.node }} are missing or old",
        "Read journalctl --unit=gb10-metrics.service on the node",
        "monitoring.md",
    ),
    Alert(
        "GB10DriverError",
        "increase(gb10_kernel_errors_total[10m]) > 0",
        "0s",
        "critical",
        "The kernel of {{ $labels.node }} logged an error of the driver ({{ $labels.kind }})",
        "Read journalctl --dmesg, and restart the node if the GPU hangs",
        "reliability.md",
    ),
    Alert(
        "GB10CmaImpossible",
        "node_memory_CmaFree_bytes > node_memory_CmaTotal_bytes",
        "1m",
        "critical",
        "{{ $labels.node }} reports more free than total CMA memory, as kernels do whose RDMA fails",
        "Boot with kho=off, or with another kernel",
        "verification.md#kernel-cma",
    ),
    Alert(
        "GB10VersionsDiffer",
        "count by (cluster, component) (count by (cluster, component, version) (gb10_version_info)) > 1",
        "10m",
        "warning",
        "The nodes of {{ $labels.cluster }} have {{ $value }} versions of {{ $labels.component }}",
        "Update all nodes to the same version",
        "verification.md",
    ),
    Alert(
        "GB10LinkMtu",
        "node_network_mtu_bytes != on (cluster, node, device) group_left () gb10_link_planned_mtu_bytes",
        "1m",
        "warning",
        "{{ $labels.device }} of {{ $labels.node }} has the MTU {{ $value }}, which is not the planned one",
        "Run site.yml --tags qsfp_netplan",
        "networking.md",
    ),
    Alert(
        "GB10LinkSlow",
        "(node_network_speed_bytes < max_over_time(node_network_speed_bytes[1d]) or node_network_carrier == 0) "
        "and on (cluster, node, device) gb10_link_planned_mtu_bytes",
        "1m",
        "critical",
        "{{ $labels.device }} of {{ $labels.node }} is slower than before, or has no carrier",
        "Plug the QSFP cable in again, and run playbooks/verify.yml",
        "networking.md",
    ),
    Alert(
        "GB10DiskFull",
        f'node_filesystem_avail_bytes{{fstype=~"ext4|xfs|btrfs|zfs",mountpoint!~"/boot.*"}} < {20 * _GIB}',
        "5m",
        "warning",
        "{{ $labels.mountpoint }} of {{ $labels.node }} has {{ $value | humanize1024 }}B left",
        "Remove stored models with playbooks/prune.yml",
        "removal.md",
    ),
    Alert(
        "GB10DraftUseless",
        "gb10:draft_accepted:ratio5m == 0",
        "10m",
        "warning",
        "The model of {{ $labels.cluster }} accepts no token of its draft, which makes answers slower",
        "Run playbooks/golden.yml, and leave out --speculative-config if the answers are right",
        "golden.md",
    ),
    Alert(
        "GB10RestartsUsed",
        "gb10_service_failed == 1 or gb10_watchdog_restarts >= gb10_watchdog_restarts_limit",
        "0s",
        "critical",
        '{{ or $labels.unit "The watchdog" }} of {{ $labels.node }} used all its restarts',
        "Run playbooks/status.yml, and run site.yml after the cause is removed",
        "reliability.md",
    ),
    Alert(
        "GB10CertificateExpires",
        f"gb10_certificate_expiry_timestamp_seconds - time() < {30 * _DAY}",
        "5m",
        "warning",
        "The API's certificate of {{ $labels.cluster }} expires within 30 days",
        "Renew gb10_api_tls_certificate, and run site.yml",
        "security.md",
    ),
    Alert(
        "GB10GoldenOld",
        f"time() - gb10_golden_timestamp_seconds > {30 * _DAY}",
        "5m",
        "info",
        "The answers of {{ $labels.cluster }} were last compared more than 30 days ago",
        "Run playbooks/golden.yml",
        "golden.md",
    ),
)


def text() -> str:
    """Return rules.yml. Each rule is one line of JSON, which YAML contains."""
    recordings = [{"record": rule.record, "expr": rule.expr} for rule in RECORDINGS]
    groups = {"gb10": [*recordings, *map(_alert, ALERTS)]}
    lines = ["# Ansible managed", "groups:"]
    for name, entries in groups.items():
        lines += [f"  - name: {name}", "    rules:", *(f"      - {json.dumps(entry)}" for entry in entries)]
    return "\n".join([*lines, ""])


def _alert(rule: Alert) -> dict[str, object]:
    return {
        "alert": rule.alert,
        "expr": rule.expr,
        "for": rule.wait,
        "labels": {"severity": rule.severity},
        "annotations": {"summary": rule.summary, "fix": f"{rule.fix}.", "runbook_url": f"{PAGES}/{rule.page}"},
    }
