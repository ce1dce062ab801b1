# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the gateway's plan and its reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data, typed_plan


def gateway_plan(
    models: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], keys: Mapping[str, str], tls: Mapping[str, str]
) -> dict[str, Any]:
    """Return the gateway's files and place, or a report of all problems; see module_utils/gateway/plan.py.

    No result has a key.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.api import access
    from ansible_collections.gb10.cluster.plugins.module_utils.gateway import plan, schema
    from ansible_collections.gb10.cluster.plugins.plugin_utils import certificate

    given, known, texts = plain_data(settings), plain_data(keys), {**plain_data(tls), "ca": ""}
    client = access.place(given["host"], given["port"], given["name"], given["address"], True)["client"]
    facts = certificate.verdict(texts, client)
    entries = plan.models_of(plain_data(models))
    return plan.plan(
        schema.Settings(models=entries, keyed=list(known), tls=bool(facts), **given), known, facts, texts["certificate"]
    )


def gateway_service(
    planned: Mapping[str, Any], environment: str, port: int, start_timeout: int, secrets: str
) -> dict[str, Any]:
    """Return {unit: {text, inputs}, files, directories, written} of the gateway.

    ``planned``: of the filter gateway_plan. ``secrets``: the version of the models' keys.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.gateway import service
    from ansible_collections.gb10.cluster.plugins.plugin_utils import program

    given = plain_data(planned)
    return program.service(service.service(given, str(environment), int(port), int(start_timeout), str(secrets)))


def gateway_cluster_models(
    heads: Mapping[str, str], plans: Mapping[str, Any], cas: Mapping[str, str], host: str
) -> list[dict[str, Any]]:
    """Return the entries of gateway_models for planned clusters; see module_utils/gateway/plan.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
    from ansible_collections.gb10.cluster.plugins.module_utils.gateway import plan

    planned = {str(head): typed_plan(each) for head, each in plans.items()}
    try:
        return plan.of_clusters(plain_data(heads), planned, plain_data(cas), str(host))
    except ProblemsError as error:
        raise AnsibleFilterError(str(error)) from error


def gateway_client_problems(name: str, models: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> str:
    """Return a report of the problems of a new client, "" if there are none."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
    from ansible_collections.gb10.cluster.plugins.module_utils.gateway import checks

    known = list(dict.fromkeys(str(entry["name"]) for entry in entries))
    found = checks.of_client(str(name), plain_data(models), known)
    return report(found) if found else ""


def gateway_lines(found: Mapping[str, Any], endpoint: str) -> list[str]:
    """Return the result of the module gateway_info as lines for people."""
    from ansible_collections.gb10.cluster.plugins.module_utils.gateway import report

    return report.lines(plain_data(found), str(endpoint))


def gateway_example(
    found: Mapping[str, Any], place: Mapping[str, str], host: str, inventories: Sequence[str]
) -> list[str]:
    """Return how clients reach the gateway as lines for people; see module_utils/gateway/report.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.api import access
    from ansible_collections.gb10.cluster.plugins.module_utils.gateway import report

    alone = str(host) if access.loopback(str(place["client"])) else ""
    return report.example(plain_data(found), str(place["endpoint"]), alone, [str(each) for each in inventories])


def gateway_client_settings(models: Sequence[Mapping[str, Any]], endpoint: str) -> list[str]:
    """Return the settings of common clients, with a placeholder for the key."""
    from ansible_collections.gb10.cluster.plugins.module_utils.gateway import report

    generating = [str(model["name"]) for model in models if model.get("kind", "generate") == "generate"]
    return report.client_settings(str(endpoint), list(dict.fromkeys(generating)))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "gateway_client_problems": gateway_client_problems,
            "gateway_client_settings": gateway_client_settings,
            "gateway_cluster_models": gateway_cluster_models,
            "gateway_example": gateway_example,
            "gateway_lines": gateway_lines,
            "gateway_plan": gateway_plan,
            "gateway_service": gateway_service,
        }
