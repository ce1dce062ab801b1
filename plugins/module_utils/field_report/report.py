# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report from real hardware for an issue, without names, addresses and keys: versions, plan, state, verification,
golden answers, and speed. Also without a plan, a model or a finished run: problems, failures and evidence of the nodes.

Only the listed values are taken from each source. All texts are reduced to public words and typed values after that.
Keys are not, so that a value with keys from a node or a file becomes a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import network
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.field_report import evidence, excerpt, failure, redact
from ansible_collections.gb10.cluster.plugins.module_utils.launch.choices import MESSAGES
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, drafts
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, PlannedNode
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report as verify_report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, Cluster

FORMAT = 4
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
#: Of the last starts of ranks, with the lowest available memory.
_START = ("seconds", "minimum", "floor", "phase", "end")
_PORT = ("driver", "up", "carrier", "speed", "mtu", "hca")
_PCI = ("width", "max_width", "speed", "max_speed")
_LINK = ("interface", "carrier", "speed", "hca", "state")
_GPU_STATE = ("clock_mhz", "max_clock_mhz", "power_w", "temperature_c", "utilization", "limit_mhz", "slowed")
_GOLDEN = (
    "date",
    "quantization",
    "vllm",
    "record_date",
    "record_vllm",
    "answers",
    "equal",
    "near",
    "different",
    "perplexity",
    "record_perplexity",
    "acceptance",
    "errors",
    "warnings",
)
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
    "findings",
)
#: Options of vllm serve whose values identify a site or are secret.
_PRIVATE = ("lora", "key", "token", "secret", "password", "header", "host", "name", "origin")


#: Names that are words of messages, and so are not replaced in them.
_COMMON = frozenset("gb10 root nvidia ubuntu nobody localhost vllm ray docker head worker all ungrouped".split())
_MOST_PROBLEMS, _MOST_LINES = 20, 100


@dataclass(frozen=True)
class Records:
    """Files on the controller as text, "" for none: the newest benchmark, the last golden result, NCCL's bandwidth, and
    the last failures."""

    benchmark: str = ""
    golden: str = ""
    bandwidth: str = ""
    failures: str = ""


@dataclass(frozen=True)
class Site:
    """The controller's facts without a plan: the tasks that failed with their error, and the inventory's own names.

    ``problems``: {task, text} of each. ``model``: that of the inventory. ``names``: the other hosts, clusters and
    users.
    """

    problems: Sequence[Mapping[str, str]] = ()
    model: str = ""
    served: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


def names(
    plan: Plan | None, nodes: Sequence[Mapping[str, Any]], hosts: Mapping[str, str], site: Site = Site()
) -> dict[str, str]:
    """Return the site's own names and their replacements. ``hosts``: the management address or name by node.

    ``plan`` is None without one.
    """
    models = dict.fromkeys(_models(plan, site), _model(plan, site))
    known = {**site.names, **models, plan.user if plan else "": "USER", **dict.fromkeys(hosts.values(), redact.ADDRESS)}
    rails = {each.name: [rail.address for rail in each.rails] for each in (plan.nodes if plan else ())}
    for number, node in enumerate(nodes, 1):
        of_node = (node["name"], node["facts"].get("hostname") or "")
        forms = {form for name in of_node for form in (name, name.partition(".")[0]) if not form.isdigit()}
        known |= dict.fromkeys([*forms, *rails.get(node["name"], ())], f"node{number}")
    return {name: new for name, new in known.items() if name and name.lower() not in _COMMON and name != new}


def _models(plan: Plan | None, site: Site) -> Iterator[str]:
    """Yield the model's own names."""
    yield from (plan.model, plan.served_model_name) if plan else ()
    yield site.served
    if site.model not in catalog.known():
        yield site.model


def _model(plan: Plan | None, site: Site = Site()) -> str:
    """Return the model's name in the catalog, or MODEL: an own model can name its owner."""
    if not plan:
        return site.model if site.model in catalog.known() else "MODEL"
    planned = [each.hub for each in plan.drafts]
    hub = plan.store.hub if plan.store else ""
    known = [model for model in catalog.known().values() if model.hub and model.hub == hub]
    same = [model for model in known if [draft.hub for draft in (drafts.find(model.args),) if draft] == planned]
    return next((model.name for model in [*same, *known]), "MODEL")


def document(
    plan: Plan | None,
    nodes: Sequence[Mapping[str, Any]],
    hosts: Mapping[str, str],
    records: Records,
    date: str,
    public: redact.Words,
    site: Site = Site(),
) -> dict[str, Any]:
    """Return the report. ``plan``: None without one. ``nodes``: in their order, as for verify.report.report, with the
    ``evidence`` of each. ``date``: the day. ``public``: of io_words.public().

    Raises ValueError if identifying text is left.
    """
    known = names(plan, nodes, hosts, site)
    head: Mapping[str, Any] = next((node["facts"].get("api") or {} for node in nodes if node["head"]), {})
    planned = {each.name: _of_plan(each) for each in (plan.nodes if plan else ())}
    found = {
        "format": FORMAT,
        "date": date,
        "model": _model(plan, site),
        **_planned(plan, _bandwidth(records.bandwidth)),
        "problems": [_problem(each) for each in site.problems[:_MOST_PROBLEMS]],
        "failures": failure.of_nodes(records.failures, [node["name"] for node in nodes]),
        "api": {key: head.get(key) for key in ("healthy", "answers", "answered_after", "prefix_cache_hit_rate")},
        "nodes": [_node(planned.get(node["name"]) or _unplanned(node), node) for node in nodes],
        "verification": _verification(
            verify_report.cluster([{key: node[key] for key in node if key != "evidence"} for node in nodes])
        ),
        "golden": _listed(records.golden, _GOLDEN),
        "benchmark": _listed(records.benchmark, _BENCHMARK),
    }
    result = _bounded(redact.redacted(found, known, public))
    if left := redact.leaks(result, known, public):
        raise ValueError(f"the report would contain identifying text ({', '.join(left)}), so it was not written")
    return result


def _bounded(redacted: dict[str, Any]) -> dict[str, Any]:
    """Limit the parts that are not listed value by value. Not before the redaction: a part of a name would stay."""
    for part in (redacted, *redacted["nodes"]):
        part |= {key: evidence.bounded(part[key]) for key in ("problems", "failures", "evidence") if key in part}
    return redacted


def _planned(plan: Plan | None, bandwidth: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the report that a plan has, with None or nothing without one."""
    if not plan:
        return {
            "stack": None,
            "runtime": None,
            "nccl": {"build": None, "why": [], "bandwidth": bandwidth},
            "plan": None,
            "args": [],
        }
    facts = plan.facts()
    return {
        "stack": facts["stack"],
        "runtime": plan.runtime.kind,
        "nccl": {key: facts["nccl"][key] for key in ("build", "why")} | {"bandwidth": bandwidth},
        "plan": {**{key: facts[key] for key in _PLAN}, **{key: facts["serve"][key] for key in _SERVE}},
        "args": _args([*plan.serve.args, *plan.serve.user_args]),
    }


def _of_plan(node: PlannedNode) -> dict[str, Any]:
    rails = [{"interface": rail.interface, "hca": rail.hca} for rail in node.rails]
    return {"head": node.head, "capability": node.capability, "rails": rails}


def _unplanned(node: Mapping[str, Any]) -> dict[str, Any]:
    gpus = (node["facts"].get("gpu") or {}).get("gpus", ())
    return {"head": node["head"], "capability": next((gpu["capability"] for gpu in gpus), None), "rails": []}


def _problem(given: Mapping[str, str]) -> dict[str, Any]:
    lines = [line for line in str(given.get("text", "")).splitlines() if line.strip()]
    return {"task": str(given.get("task", ""))[:_MOST], "lines": [line[:_MOST] for line in lines[:_MOST_LINES]]}


def _evidence(node: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return a part of the result of field_report_info, {} without one."""
    found = (node.get("evidence") or {}).get(part)
    return found if isinstance(found, Mapping) else {}


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


def _node(planned: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known values of a node. Unknown ones are None or empty."""
    facts: Mapping[str, Any] = node["facts"]

    def part(name: str) -> Any:
        return facts.get(name) or {}

    return {
        "head": planned["head"],
        "unreachable": node["unreachable"],
        "unread": [f"{name}: {reason}" for name, reason in {**part("unread"), **_evidence(node, "unread")}.items()],
        "capability": planned["capability"],
        "gpus": [gpu["name"] for gpu in part("gpu").get("gpus", ())],
        "gpu_state": {key: part("gpu_state").get(key) for key in _GPU_STATE},
        "product": facts.get("product"),
        "bios": facts.get("bios"),
        "firmware": [{"hca": hca, "version": version} for hca, version in part("firmware").items()],
        "driver": part("gpu").get("driver_version"),
        "kernel": facts.get("kernel"),
        "next_kernel": {key: part("boot").get(key) for key in ("kernel", "nvidia", "missing")},
        "packages": [f"{name} {release}" for name, release in part("packages").items()],
        "nccl": part("nccl_installed").get("version"),
        "cma_total_bytes": facts.get("cma_total_bytes"),
        "memory_bytes": facts.get("total"),
        "available_bytes": facts.get("available"),
        "ranks_bytes": list(map(itemgetter("bytes"), part("ranks"))),
        "starts": [{key: start[key] for key in _START} for start in part("memory_guard").get("starts", ())],
        "services": [{key: service[key] for key in _SERVICE} for service in part("services")],
        "links": [{key: link[key] for key in _LINK} for link in part("links")],
        "ports": _ports(part("interfaces"), part("rdma")),
        "rails": planned["rails"],
        "kernels": _kernels(part("kernels")),
        "choices": _choices(part("evidence").get("processes", ())),
        "gpu_probe": list(node.get("probe") or ()),
        "error": "; ".join(excerpt.known([part("error").get("text", "")])),
        "evidence": {item: _evidence(node, "evidence").get(item) for item in evidence.ITEMS},
    }


def _ports(interfaces: Mapping[str, Any], rdma: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the physical interfaces with their links, PCIe and RDMA, and the kinds of their owners."""
    found = []
    for name, port in interfaces.items():
        if port.get("kind") == "physical":
            device: Mapping[str, Any] = rdma.get(port.get("hca") or "") or {}
            found.append(
                {
                    "interface": name,
                    **{key: port.get(key) for key in _PORT},
                    "pci": {key: (port.get("pci") or {}).get(key) for key in _PCI},
                    "rdma": {key: device.get(key) for key in ("state", "link_layer")},
                    "owners": [f"{owner.get('kind')} by {owner.get('by')}" for owner in port.get("owners") or ()],
                }
            )
    return found


def _kernels(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the programs with GPU code of each extension and the planned backends, None if they were not read."""
    if not found:
        return None
    extensions = [{"name": name, **counts} for name, counts in found["extensions"].items()]
    return {"capability": found["capability"], "planned": dict(found["chosen"]), "extensions": extensions}


def _choices(processes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices of the ranks in a node's log, with the memory and seconds of the start's steps."""
    return [
        {
            "process": each["process"],
            "address": each["address"],
            **{name: each["found"][name] for name in MESSAGES if name in each["found"]},
        }
        for each in processes
    ]


def _verification(cluster: Cluster) -> dict[str, Any]:
    """Return the findings, the IDs of the checks without one, and the differences with a value for each read node."""
    found = verify_report.findings(cluster, GROUPS, {})
    ids = {finding.check.id for finding in found}
    shown = ("id", "severity", "node", "found", "expected")
    order = [node.name for node in cluster.nodes]
    return {
        "findings": [{key: facts[key] for key in shown} for facts in map(verify_report.facts, found)],
        "passed": [check.id for check in verify_report.CHECKS if check.id not in ids],
        "differences": [
            {"id": row.check, "attribute": row.attribute, "values": [row.values.get(name) for name in order]}
            for row in differences.rows(cluster)
        ],
    }


def _bandwidth(text: str) -> dict[str, Any]:
    """Return NCCL's bandwidth in 10^9 bytes per second of each run and collective, {} without a valid record."""
    found = network.figures([], text)["bandwidth"]
    runs = [
        {"run": run, "collective": collective, "gbps": gbps}
        for run, each in found.get("gbps", {}).items()
        for collective, gbps in each.items()
    ]
    return {"date": found["date"], "backend": found["backend"], "runs": runs} if found else {}


def _listed(text: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the listed values of a JSON document, {} without one."""
    if not text:
        return {}
    try:
        found = bounded_json.load(text, _MOST)
    except ValueError as error:
        return {"unread": str(error)}
    return {key: found.get(key) for key in keys} if isinstance(found, Mapping) else {"unread": "it is not an object"}
