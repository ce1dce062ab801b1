# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A report from real hardware for an issue, without names, addresses and keys: versions, plan, state, verification,
golden answers, and speed. Also without a plan, a model or a finished run: problems, failures and evidence of the nodes.

Each source keeps its own form. Of the plan, the facts and the records, only the listed values are taken. All texts,
also keys, are reduced to public words and typed values after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import excerpt, failure, redact
from ansible_collections.gb10.cluster.plugins.module_utils.launch.choices import MESSAGES
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, drafts
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verify_report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, Cluster, VerifiedNode

FORMAT = 5
_MOST = 1024**2
#: What taken() takes of a mapping, or of each mapping in a list: the whole value of a key, or a part of it.
Shape = Mapping[str, Any]


def _keys(text: str) -> Shape:
    return dict.fromkeys(text.split())


_PLAN: Shape = {
    **_keys("stack quantization executor tensor_parallel_size pipeline_parallel_size data_parallel_size mtu fabric"),
    "runtime": _keys("kind"),
    "nccl": _keys("build why"),
    "serve": _keys("args user_args why memory findings warnings expected"),
    "nodes": {**_keys("head capability"), "rails": _keys("interface hca")},
}
_FACTS: Shape = {
    **_keys("product bios firmware kernel packages cma_total_bytes total available"),
    "api": _keys("healthy answers answered_after prefix_cache_hit_rate"),
    "gpu": {**_keys("driver_version"), "gpus": _keys("name capability")},
    "gpu_state": _keys("clock_mhz max_clock_mhz power_w temperature_c utilization limit_mhz slowed"),
    "boot": _keys("kernel nvidia missing"),
    "nccl_installed": _keys("version"),
    "ranks": _keys("bytes"),
    # Of the last starts of ranks, with the lowest available memory.
    "memory_guard": {"starts": _keys("seconds minimum floor phase end")},
    "services": _keys("unit active sub restarts enabled"),
    "links": _keys("interface carrier speed hca state"),
    "interfaces": {
        "*": {
            **_keys("kind driver up carrier speed mtu hca"),
            "pci": _keys("width max_width speed max_speed"),
            "owners": _keys("kind by"),
        }
    },
    "rdma": {"*": _keys("state link_layer")},
    "kernels": _keys("capability chosen extensions"),
    "evidence": {"processes": {**_keys("process address"), "found": dict.fromkeys(MESSAGES)}},
}
_GOLDEN = _keys(
    "date quantization vllm record_date record_vllm answers equal near different perplexity record_perplexity "
    "acceptance errors warnings"
)
_BENCHMARK = _keys("date mode stack vllm executor nodes tensor pipeline data roofline_tokens_per_second runs findings")
#: Names that are words of messages, and so are not replaced in them.
_COMMON = frozenset("gb10 root nvidia ubuntu nobody localhost vllm ray docker head worker all ungrouped".split())


def document(
    plan: Plan | None,
    cluster: Cluster,
    own: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, str],
    date: str,
    public: redact.Words,
    names: Mapping[str, str],
    model: str,
    problems: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the report. ``plan``: None without one. ``own``: the result {evidence, unread} of each node.

    ``records``: the texts of the newest benchmark, the last golden result, NCCL's bandwidth and the last failures, by
    these words. ``date``: the day. ``public``: of io_words.public(). ``names``: the inventory's own names and their
    replacements. ``model``: that of the inventory. ``problems``: the failed tasks {task, text}.

    Raises ValueError if identifying text is left.
    """
    shown = model_name(plan, model)
    known = known_names(plan, cluster.nodes, {**names, **({} if model in catalog.known() else {model: shown})}, shown)
    found = {
        "format": FORMAT,
        "date": date,
        "model": shown,
        "plan": taken(plan.facts(), _PLAN) if plan else None,
        "bandwidth": network.figures([], records.get("bandwidth", ""))["bandwidth"],
        "problems": [{"task": each["task"], "lines": str(each["text"]).splitlines()} for each in problems],
        "failures": failure.of_nodes(records.get("failures", ""), [node.name for node in cluster.nodes]),
        "nodes": [_node(node, own.get(node.name, {})) for node in cluster.nodes],
        "verification": _verification(cluster),
        "golden": _record(records.get("golden", ""), _GOLDEN),
        "benchmark": _record(records.get("benchmark", ""), _BENCHMARK),
    }
    # The limits come last: a part of a name would stay.
    result: dict[str, Any] = redact.bounded(redact.redacted(found, known, public))
    if left := [part for part in result if redact.redacted(result[part], known, public) != result[part]]:
        raise ValueError(f"the report would contain identifying text ({', '.join(left)}), so it was not written")
    return result


def known_names(
    plan: Plan | None, nodes: Sequence[VerifiedNode], names: Mapping[str, str], model: str
) -> dict[str, str]:
    """Return the site's own names and their replacements. ``model``: the shown name of the model."""
    known = {**names, **({plan.model: model, plan.served_model_name: model, plan.user: "USER"} if plan else {})}
    rails = {each.name: [rail.address for rail in each.rails] for each in (plan.nodes if plan else ())}
    for number, node in enumerate(nodes, 1):
        of_node = (node.name, node.facts.get("hostname") or "")
        forms = {form for name in of_node for form in (name, name.partition(".")[0]) if not form.isdigit()}
        known |= dict.fromkeys([*forms, *rails.get(node.name, ())], f"node{number}")
    return {name: new for name, new in known.items() if name and name.lower() not in _COMMON and name != new}


def model_name(plan: Plan | None, given: str) -> str:
    """Return the model's name in the catalog, or MODEL: an own model can name its owner."""
    if not plan:
        return given if given in catalog.known() else "MODEL"
    planned = [each.hub for each in plan.drafts]
    hub = plan.store.hub if plan.store else ""
    known = [model for model in catalog.known().values() if model.hub and model.hub == hub]
    same = [model for model in known if [draft.hub for draft in (drafts.find(model.args),) if draft] == planned]
    return next((model.name for model in [*same, *known]), "MODEL")


def taken(value: Any, shape: Shape | None) -> Any:
    """Return the values of plain data that a shape names, None for a missing one. The key "*" is each key."""
    if shape is None:
        return value
    if isinstance(value, list | tuple):
        return [taken(each, shape) for each in value]
    if not isinstance(value, Mapping):
        return None
    parts = dict.fromkeys(value, shape["*"]) if "*" in shape else shape
    return {key: taken(value.get(key), part) for key, part in parts.items()}


def _node(node: VerifiedNode, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known values of a node. Unknown ones are None or empty."""
    facts = node.facts
    physical = {name: each for name, each in (facts.get("interfaces") or {}).items() if each.get("kind") == "physical"}
    return {
        "head": node.head,
        "unreachable": node.unreachable,
        "unread": {"facts": facts.get("unread"), "evidence": own.get("unread")},
        "facts": taken({**facts, "interfaces": physical}, _FACTS),
        "gpu_probe": node.probe,
        "error": excerpt.known([(facts.get("error") or {}).get("text", "")]),
        "evidence": own.get("evidence"),
    }


def _verification(cluster: Cluster) -> dict[str, Any]:
    """Return the findings, the IDs of the checks without one, and the differences with a value for each read node."""
    found = verify_report.findings(cluster, GROUPS, {})
    ids = {finding.check.id for finding in found}
    order = [node.name for node in cluster.nodes]
    return {
        "findings": taken(list(map(verify_report.facts, found)), _keys("id severity node found expected")),
        "passed": [check.id for check in verify_report.CHECKS if check.id not in ids],
        "differences": [
            {"id": row.check, "attribute": row.attribute, "values": [row.values.get(name) for name in order]}
            for row in differences.rows(cluster)
        ],
    }


def _record(text: str, shape: Shape) -> Any:
    """Return the listed values of a JSON document, None without one, or the reason in ``unread``."""
    try:
        return taken(bounded_json.load(text, _MOST), shape) if text else None
    except ValueError as error:
        return {"unread": str(error)}
