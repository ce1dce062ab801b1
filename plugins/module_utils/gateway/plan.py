# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's inputs to the settings of its program."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import checks
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import (
    CLIENTS,
    GatewaySettings,
    Model,
    Planned,
)
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan


def models_of(entries: Sequence[Mapping[str, Any]]) -> list[Model]:
    """Return the entries of gateway_models, whose types the role's specification has checked."""
    texts, numbers = ("name", "url", "cluster", "ca", "kind"), ("context", "wake")
    found: list[dict[str, Any]] = [
        {name: str(entry[name]) for name in texts if name in entry}
        | {name: int(entry.get(name, 0)) for name in numbers}
        for entry in entries
    ]
    return [Model(**each) for each in found]


def of_fallback(cluster: str) -> str:
    """Return the name under which the gateway knows the fallback of a cluster."""
    return f"{cluster}.fallback"


def of_clusters(
    heads: Mapping[str, str],
    plans: Mapping[str, Plan],
    cas: Mapping[str, str],
    host: str,
    proofs: Mapping[str, Mapping[str, Any]] = {},
) -> list[Model]:
    """Return the models of planned clusters: cluster -> head, and head -> gb10_plan and the text of its CA.

    ``host`` is the gateway's host, which reaches an API on its own loopback. ``proofs``: see proof.py, by head. Raises
    ProblemsError.
    """
    problems, found = [], []
    for cluster, head in heads.items():
        planned = plans[head]
        local = access.loopback(planned.api_host)
        if local and head != host:
            reason, expected = f"the API listens on loopback of {head}", f"an address that {host} reaches"
            problems.append(Problem(f"gateway_clusters.{cluster}", reason, expected, "set its gb10_api_host"))
        url = f"{planned.api.url}/v1" if local else planned.api.endpoint
        context = planned.serve.expected.context
        wake = planned.rest.port if planned.rest.after else 0
        name, ca, proof = planned.served_model_name, cas.get(head, ""), proofs.get(head, {})
        found.append(Model(name, url, cluster, ca, planned.kind, context, wake, proof))
        small = planned.fallback
        if small and small.node == host:
            local_url = f"http://127.0.0.1:{small.port}/v1"
            found.append(Model(small.served_model_name, local_url, of_fallback(cluster), context=small.context))
    refuse(problems)
    return found


def plan(given: GatewaySettings, keys: Mapping[str, str], tls: Mapping[str, Any], certificate: str = "") -> Planned:
    """Return the gateway's files. Raises ProblemsError with every problem.

    ``tls``: the certificate's facts from plugin_utils/certificate.py; ``certificate``: its text.
    """
    of_tls = map(_of_gateway, tls.get("problems", ()))
    refuse([*checks.problems(given), *checks.of_keys(keys, given.models), *of_tls])
    return Planned(
        json.dumps(settings(given), indent=2) + "\n",
        f"{certificate.strip()}\n" if certificate else "",
        {cluster: checks.variable(cluster) for cluster in given.keyed},
        [warning.replace("gb10_api_tls", "gateway_tls") for warning in tls.get("warnings", ())],
    )


def _of_gateway(problem: Mapping[str, str]) -> Problem:
    """The certificate's checks name the variables of the role gb10."""
    names = {"gb10_api_tls": "gateway_tls", "gb10_api_name": "gateway_name", "of the head": "of the host"}
    pattern = re.compile("|".join(names))
    return Problem(**{key: pattern.sub(lambda match: names[match[0]], value) for key, value in problem.items()})


def settings(given: GatewaySettings) -> dict[str, Any]:
    """Return the settings of the program."""
    return {
        "host": given.host,
        "port": given.port,
        "models": [
            {
                **asdict(model),
                "id": model.id,
                "variable": checks.variable(model.cluster) if model.cluster in given.keyed else "",
            }
            for model in given.models
        ],
        "fallbacks": {name: list(others) for name, others in given.fallbacks.items()},
        "health_interval": given.health_interval,
        "silence_timeout": given.silence_timeout,
        "wake_timeout": given.wake_timeout,
        "origins": list(given.origins),
        "clients": CLIENTS,
    }
