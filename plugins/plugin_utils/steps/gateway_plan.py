# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the inputs of the gateway, and plan its settings.

Reads the variables of the role gateway, the plans of the clusters in ``gateway_clusters``, and what earlier tasks of
the role read from their heads.
Fails with every problem. No result contains a key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, report
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway, sources
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """No inputs."""


def run(step: Decision, _given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {lock, environment, ids, settings, certificate, variables, notes}, or a failure with every problem.

    No result has a key.
    """
    try:
        models = gateway.models(step, variables)
    except ProblemsError as error:
        return {"failed": True, "msg": str(error)}
    client = gateway.place(step, variables)["client"]
    if not secret_environment.is_address(str(gateway.setting(step, variables, "index_url"))):
        fix = "set it in uv.toml or .netrc of root on the gateway's host"
        wrong = Problem("gateway_index_url", secret_environment.USER, secret_environment.PLAIN, fix)
        return {"failed": True, "msg": report([wrong])}
    keys, tls = gateway.keys(step, variables), gateway.tls(step, variables)
    planned = gateway.planned(models, gateway.settings(step, variables), keys, tls, client)
    if planned["report"]:
        return {"failed": True, "msg": planned["report"]}
    lock = sources.gateway_lock()
    folder = f"{gateway.setting(step, variables, 'install_dir')}/gateway"
    return {
        "changed": False,
        "lock": lock,
        "environment": f"{folder}/{hashlib.sha256(lock.encode()).hexdigest()[:12]}",
        "ids": [f"{model['cluster']}/{model['name']}" for model in models],
        **{name: planned[name] for name in ("settings", "certificate", "variables")},
        "notes": [f"warning: {warning}" for warning in planned["warnings"]],
        "_ansible_verbose_override": True,
    }
