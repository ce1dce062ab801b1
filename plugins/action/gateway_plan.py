# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of gateway_plan, which documents it."""

from __future__ import annotations

import hashlib
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, report
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway, sources


class ActionModule(gateway.GatewayDecision):
    """Checks the variables of the role gateway on the controller."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {lock, environment, ids, settings, certificate, variables, notes}, or a failure with every problem.

        No result has a key.
        """
        self.arguments()
        try:
            models = self.models(variables)
        except ProblemsError as error:
            return {"failed": True, "msg": str(error)}
        client = self.place(variables)["client"]
        if not secret_environment.is_address(str(self.setting(variables, "index_url"))):
            fix = "set it in uv.toml or .netrc of root on the gateway's host"
            wrong = Problem("gateway_index_url", secret_environment.USER, secret_environment.PLAIN, fix)
            return {"failed": True, "msg": report([wrong])}
        planned = gateway.planned(models, self.settings(variables), self.keys(variables), self.tls(variables), client)
        if planned["report"]:
            return {"failed": True, "msg": planned["report"]}
        lock = sources.gateway_lock()
        folder = f"{self.setting(variables, 'install_dir')}/gateway"
        return {
            "changed": False,
            "lock": lock,
            "environment": f"{folder}/{hashlib.sha256(lock.encode()).hexdigest()[:12]}",
            "ids": [f"{model['cluster']}/{model['name']}" for model in models],
            **{name: planned[name] for name in ("settings", "certificate", "variables")},
            "notes": [f"warning: {warning}" for warning in planned["warnings"]],
            "_ansible_verbose_override": True,
        }
