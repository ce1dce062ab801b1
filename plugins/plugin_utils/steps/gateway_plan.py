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
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway, sources
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """No inputs."""


def run(step: Decision, _given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {lock, environment, ids, notes} and the fields of Planned, or a failure with every problem.

    No result has a key.
    """
    client, settings = gateway.place(step, variables)["client"], gateway.settings(step, variables)
    keys, tls = gateway.keys(step, variables), gateway.tls(step, variables)
    try:
        models = gateway.models(step, variables)
        if not secret_environment.is_address(str(gateway.setting(step, variables, "index_url"))):
            fix = "set it in uv.toml or .netrc of root on the gateway's host"
            refuse([Problem("gateway_index_url", secret_environment.USER, secret_environment.PLAIN, fix)])
        planned = gateway.planned(models, settings, keys, tls, client)
    except ProblemsError as error:
        return {"failed": True, "msg": str(error)}
    lock = sources.gateway_lock()
    folder = f"{gateway.setting(step, variables, 'install_dir')}/gateway"
    return {
        "changed": False,
        "lock": lock,
        "environment": f"{folder}/{hashlib.sha256(lock.encode()).hexdigest()[:12]}",
        "ids": [model.id for model in models],
        # Ansible would print `warnings` itself.
        **{name: value for name, value in asdict(planned).items() if name != "warnings"},
        "notes": [f"warning: {warning}" for warning in planned.warnings],
        "_ansible_verbose_override": True,
    }
