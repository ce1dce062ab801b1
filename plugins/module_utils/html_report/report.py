# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the page's template: typed nodes, findings and records. The template selects and escapes text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.diagram import View
from ansible_collections.gb10.cluster.plugins.module_utils.health import status
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import drawing, parse
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences, evidence, kernels, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import (
    GROUPS,
    SEVERITIES,
    Cluster,
    VerifiedNode,
)

#: The documentation on the web: `repository` of galaxy.yml.
REPOSITORY = "https://github.com/gb10-cluster/gb10.cluster"
#: Most findings of a check, and rows of a table; most benchmarks.
ENTRIES, BENCHMARKS = 300, 12
#: The words for each message of the log.
MESSAGES: Mapping[str, str] = {
    "release": "vLLM",
    "device": "device",
    "speculative": "speculative decoding",
    "prefix_caching": "prefix caching",
    "attention": "attention backend",
    "moe_backend": "MoE backend",
    "kernel": "kernels of linear layers",
    "table": "without a tuned table",
    "sampler": "sampler",
    "autotune": "FlashInfer's autotuning",
    "nccl": "NCCL",
    "network": "network of NCCL",
    "graphs": "CUDA graphs",
    "kv_cache": "KV cache",
    "kv_gib": "GiB for the KV cache",
    "weights_seconds": "seconds to read the weights",
    "model_seconds": "seconds to load the model",
    "compile_seconds": "seconds of torch.compile",
    "graph_seconds": "seconds to capture graphs",
    "patch": "patches",
    "weight_only": "weights computed in 16 bits",
    "fallback": "replaced",
}


def page(known: Cluster, groups: Sequence[str], waivers: Mapping[str, str], records: View) -> View:
    """Return the variables of the template, without the cluster's name and whether slow checks were left out.

    ``groups``: as for verify.report.report. ``waivers``: reasons by ID. ``records``: the texts ``golden``
    of the last golden result and ``matrix`` of several models, None without one, and ``benchmarks``: documents by path,
    the newest one first.
    """
    found = report.findings(known, groups, waivers)
    counting = [finding for finding in found if not finding.waived]
    checks = [check for check in report.CHECKS if check.topic in groups]
    rows = [row for row in differences.rows(known) if row.check in {check.id for check in checks}]
    return {
        "known": known,
        "groups": groups,
        "left_out": [group for group in GROUPS if group not in groups],
        "checks": checks,
        "found": found,
        "counting": counting,
        "worst": drawing.worst(counting),
        "started": _time(min((node.started for node in known.nodes), default=0.0)),
        "finished": _time(max((node.finished for node in known.nodes), default=0.0)),
        "drawing": drawing.fabric(known, counting),
        **_api(known),
        "differences": rows,
        "documents": kernels.documents(known),
        "evidence": [check for check in evidence.CHECKS if check in checks],
        **CONSTANTS,
        **_records(records),
    }


def _api(known: Cluster) -> View:
    """Return the API and the watchdog."""
    watchdogs = {node.name: node.part("watchdog") for node in known.read if node.part("watchdog")}
    return {
        "api": next((node.part("api") for node in known.read if node.head), {}),
        "endpoint": next((node.endpoint for node in known.read if node.head), ""),
        "watchdog": status.watchdog(watchdogs),
    }


def _records(given: View) -> View:
    """Return the records that exist in their shapes."""
    texts = dict(list(given["benchmarks"].items())[:BENCHMARKS])
    golden, matrix = given["golden"], given["matrix"]
    return {
        "golden": None if golden is None else parse.record(golden, parse.GOLDEN),
        "matrix": None if matrix is None else parse.record(matrix, parse.MATRIX),
        "benchmarks": {path.rpartition("/")[2]: parse.record(text, parse.BENCHMARK) for path, text in texts.items()},
        "older": len(given["benchmarks"]) - len(texts),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _logged(node: VerifiedNode, name: str) -> str:
    """Return what a node's log names."""
    return ", ".join(choices.values(evidence.processes(node), name))


#: The variables of each page: bounds, words, and functions of nodes and findings.
CONSTANTS: View = {
    "repository": REPOSITORY,
    "severities": SEVERITIES,
    "most": ENTRIES,
    "drawn": drawing.MOST,
    "said": MESSAGES,
    "probes": gpu_probe.CHECKS,
    "activity": status.activity,
    "counted": drawing.counted,
    "logged": _logged,
    "nccl": differences.nccl,
    "probed": gpu_probe.described,
    "state": drawing.state,
}
