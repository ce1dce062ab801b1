# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inputs of the gateway's steps: the variables of the role gateway, and what its tasks read from the heads."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import plan, proof, schema
from ansible_collections.gb10.cluster.plugins.module_utils.golden import record
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Bounds
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs, certificate, sources
from ansible_collections.gb10.cluster.plugins.plugin_utils.controller import Files
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import typed_plan

_OPTIONS = argument_specs.read("gateway")["main"]["options"]
#: The registered results of slurp, each with a head as value of its item.
_KEYS, _CAS = "__gateway_cluster_keys", "__gateway_cluster_cas"
#: Bound -> the variable of the role golden.
_BOUNDS = {
    "tie": "golden_tie_bound",
    "distance": "golden_distance_bound",
    "perplexity_change": "golden_perplexity_change",
    "perplexity": "golden_perplexity_limit",
    "strict": "golden_strict",
}
#: The registered result of slurp for the fallback on the gateway's host.
_FALLBACK_KEY = "__gateway_fallback_key"


def setting(step: Decision, variables: Mapping[str, Any], name: str) -> Any:
    """Return the value of gateway_<name>; its default where a call without the role has none."""
    option = _OPTIONS[f"gateway_{name}"]
    return step.variable(variables, f"gateway_{name}", argument_specs.default(option))


def number(step: Decision, variables: Mapping[str, Any], name: str) -> int:
    """Return a number. Any other value counts as 0, which the plan refuses."""
    try:
        return int(setting(step, variables, name))
    except (TypeError, ValueError):
        return 0


def place(step: Decision, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return {url, server_name, endpoint, client} as access.place."""
    host, name = (str(setting(step, variables, part)) for part in ("host", "name"))
    secured = bool(setting(step, variables, "tls_certificate"))
    return access.place(host, number(step, variables, "port"), name, step.address(variables), secured)


def settings(step: Decision, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of GatewaySettings that are variables of the role."""
    return {
        **{name: setting(step, variables, name) for name in ("host", "name", "fallbacks", "origins")},
        **{
            name: number(step, variables, name)
            for name in ("port", "silence_timeout", "health_interval", "wake_timeout")
        },
        "allow_plain_http": boolean(setting(step, variables, "allow_plain_http"), strict=False),
    }


def tls(step: Decision, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts {certificate, key} of gateway_tls_certificate and gateway_tls_key."""
    read = partial(step.file, variables=variables)
    values = {name: str(setting(step, variables, f"tls_{name}")) for name in ("certificate", "key")}
    return {name: sources.pem(value, read) for name, value in values.items()}


def models(step: Decision, variables: Mapping[str, Any]) -> list[schema.Model]:
    """Return the models of the clusters of the inventory, then those of gateway_models. Raises ProblemsError."""
    heads: dict[str, str] = setting(step, variables, "clusters")
    facts = step.of_nodes(variables, heads.values(), "gb10_plan", {})
    plans = {head: typed_plan(step._templar.template(fact)) for head, fact in facts.items()}
    cas = {result["item"]["value"]: content for result, content in _contents(step, variables, _CAS)}
    own = plan.models_of(setting(step, variables, "models"))
    replaced = {
        head: plans[head] for head in heads.values() if plans[head].served_model_name in _replaced(step, variables)
    }
    proofs = {head: _proof(step, head, planned, variables) for head, planned in replaced.items()}
    return [*plan.of_clusters(heads, plans, cas, str(variables["inventory_hostname"]), proofs), *own]


def _replaced(step: Decision, variables: Mapping[str, Any]) -> list[str]:
    """Return the models that have fallbacks."""
    return [name for name, others in setting(step, variables, "fallbacks").items() if others]


def _proof(step: Decision, head: str, planned: Plan, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the proof of a model from its golden record, {} without one. Raises ProblemsError."""
    inputs = step.of_nodes(variables, [head], "gb10_inputs", {})[head]
    settings = inputs["settings"]
    if not boolean(settings["golden_enabled"], strict=False) or planned.kind != schema.KINDS[0]:
        return {}
    server = record.served(planned.facts())
    path = record.file(server, inputs["golden_directory"])
    content = Files(step._loader, step._templar, variables).text(path)
    if content is None:
        return {}
    bounds = Bounds(**{name: settings[variable] for name, variable in _BOUNDS.items()})
    return proof.of_record(record.read(content, path, server.identity), bounds, server.root)


def keys(step: Decision, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the API key of each cluster. No result may have one."""
    found = {result["item"]["key"]: content.strip() for result, content in _contents(step, variables, _KEYS)}
    small = step.variable(variables, _FALLBACK_KEY, {})
    if "content" in small:
        mine = step.variable(variables, "gb10_plan")["head"]["name"]
        cluster = next(name for name, head in setting(step, variables, "clusters").items() if head == mine)
        found[plan.of_fallback(cluster)] = base64.b64decode(small["content"]).decode().strip()
    return {**setting(step, variables, "model_keys"), **found}


def _contents(step: Decision, variables: Mapping[str, Any], name: str) -> list[tuple[Mapping[str, Any], str]]:
    """Return the results that read a file, each with its text. Without a cluster, no task registers any."""
    if not setting(step, variables, "clusters"):
        return []
    results = step.variable(variables, name)["results"]
    return [(each, base64.b64decode(each["content"]).decode()) for each in results if "content" in each]


def planned(
    models: Sequence[schema.Model],
    settings: Mapping[str, Any],
    keys: Mapping[str, str],
    tls: Mapping[str, str],
    client: str,
) -> schema.Planned:
    """Return the gateway's files. Raises ProblemsError with every problem.

    ``settings``: of settings(). ``tls``: the texts {certificate, key}. ``client``: of place().
    """
    facts = certificate.verdict({**tls, "ca": ""}, client)
    given = schema.GatewaySettings(models=models, keyed=list(keys), tls=bool(facts), **settings)
    return plan.plan(given, keys, facts, tls["certificate"])
