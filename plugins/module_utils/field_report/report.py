# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report from real hardware for an issue: versions, plan, state and benchmarks, without names, addresses and keys.

Only the listed values are taken from each source. All texts are redacted after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import redact
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog

FORMAT = 1
_MOST = 1024**2
_PLAN = (
    "quantization",
    "executor",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "mtu",
    "fabric",
)
_SERVE = ("why", "memory", "findings", "warnings", "expected")
_SERVICE = ("unit", "active", "sub", "restarts", "enabled")
_LINK = ("interface", "carrier", "speed", "hca", "state")
_BENCHMARK = (
    "date",
    "mode",
    "stack",
    "vllm",
    "executor",
    "nodes",
    "tensor",
    "pipeline",
    "data",
    "roofline_tokens_per_second",
    "runs",
    "network",
    "findings",
)
#: Options of vllm serve whose values identify a site or are secret.
_PRIVATE = ("key", "token", "secret", "password", "header", "host", "name", "origin")


def names(plan: Mapping[str, Any], hosts: Mapping[str, str]) -> dict[str, str]:
    """Return the site's own names and their replacements. ``hosts``: the management address or name by node."""
    known = {plan["model"]: _model(plan), plan["served_model_name"]: _model(plan), plan["user"]: "USER"}
    known |= {plan["api"][key]: "ADDRESS" for key in ("client", "server_name")}
    for number, node in enumerate(plan["nodes"], 1):
        known |= {node["name"]: f"node{number}", hosts.get(node["name"], ""): "ADDRESS"}
    # Equal everywhere, so they identify nothing.
    return {name: new for name, new in known.items() if name and name not in ("gb10", new)}


def _model(plan: Mapping[str, Any]) -> str:
    """Return the model's name in the catalog, or MODEL: an own model can name its owner."""
    known = [model.name for model in catalog.known().values() if model.hub and model.hub == plan["store"].get("hub")]
    return known[0] if known else "MODEL"


def document(
    plan: Mapping[str, Any],
    hosts: Mapping[str, str],
    observed: Mapping[str, Mapping[str, Any]],
    texts: Sequence[str],
    date: str,
) -> dict[str, Any]:
    """Return the report. ``observed``: {info, status} of each node, from node_info and cluster_status_info.

    ``texts``: documents of benchmarks, the oldest first; only the newest is used. ``date``: the day. Raises ValueError
    if identifying text is left.
    """
    known = names(plan, hosts)
    api = observed[plan["head"]["name"]]["status"]["api"]
    found = {
        "format": FORMAT,
        "date": date,
        "model": _model(plan),
        "stack": plan["stack"],
        "runtime": plan["runtime"]["kind"],
        "nccl": {key: plan["nccl"][key] for key in ("build", "why")},
        "plan": {**{key: plan[key] for key in _PLAN}, **{key: plan["serve"][key] for key in _SERVE}},
        "args": _args([*plan["serve"]["args"], *plan["serve"]["user_args"]]),
        "api": {key: api.get(key) for key in ("healthy", "answers", "answered_after", "prefix_cache_hit_rate")},
        "nodes": [_node(node, observed[node["name"]]) for node in plan["nodes"]],
        "benchmark": _benchmark(texts[-1]) if texts else {},
    }
    result: dict[str, Any] = redact.redacted(found, known)
    if left := redact.leaks(result, known):
        raise ValueError(f"the report would contain identifying text ({', '.join(left)}), so it was not written")
    return result


def _args(words: Sequence[str]) -> list[str]:
    """Return the arguments without private values, in both forms, --option=value and --option value."""
    result: list[str] = []
    hidden = False
    for word in words:
        option, equals, _value = word.partition("=")
        if word.startswith("-"):
            hidden = any(private in option.lower() for private in _PRIVATE)
            result.append(f"{option}=REDACTED" if hidden and equals else word)
            hidden = hidden and not equals
        else:
            result.append("REDACTED" if hidden else word)
    return result


def _node(node: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    info, status = seen["info"], seen["status"]
    return {
        "head": node["head"],
        "capability": node["capability"],
        "gpus": [gpu["name"] for gpu in info["gpu"]["gpus"]],
        "driver": status["driver"],
        "kernel": info["kernel"],
        "cma_total_bytes": info["cma_total_bytes"],
        "memory_bytes": status["total"],
        "available_bytes": status["available"],
        "ranks_bytes": [rank["bytes"] for rank in status["ranks"]],
        "services": [{key: service[key] for key in _SERVICE} for service in status["services"]],
        "links": [{key: link[key] for key in _LINK} for link in status["links"]],
        "rails": [{"interface": rail["interface"], "hca": rail["hca"]} for rail in node["rails"]],
        "error": status["error"].get("text", ""),
    }


def _benchmark(text: str) -> dict[str, Any]:
    found = bounded_json.load(text, _MOST)
    return {key: found.get(key) for key in _BENCHMARK} if isinstance(found, Mapping) else {}
