# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of gateway_service, which documents it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import service
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway, program


class ActionModule(gateway.GatewayDecision):
    """Writes the keys on the host with other actions and modules, so that no template has one."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result and {unit, files, directories, written} of the service."""
        given = self.arguments(plan={"type": "dict", "required": True})["plan"]
        keys = self.keys(variables)
        secrets = {variable: keys[cluster] for cluster, variable in given["variables"].items()}
        options = {"path": paths.GATEWAY_ENVIRONMENT, "variables": secrets}
        written = self.module(options, variables, "gb10.cluster.secret_environment")
        if written.get("failed"):
            return written
        if given["certificate"]:
            copied = self._copy_key(self.tls(variables)["key"], variables)
            if copied.get("failed"):
                return {"failed": True, "msg": copied.get("msg", "")}
            written["changed"] = written["changed"] or copied["changed"]
        port, start_timeout = self.number(variables, "port"), self.number(variables, "start_timeout")
        # The unit has the version of the keys, so that it changes with them.
        planned = service.service(given, given["environment"], port, start_timeout, written["version"])
        return {**written, **program.service(planned)}

    def _copy_key(self, key: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Write the private key of the certificate, which no difference shows."""
        task = self._task.copy()
        task.diff = False
        task.args = {
            "content": f"{key.strip()}\n",
            "dest": f"{paths.GATEWAY_FOLDER}/tls.key",
            "owner": "root",
            "group": "root",
            "mode": "0600",
        }
        copy = self._shared_loader_obj.action_loader.get(
            "ansible.builtin.copy",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        result: dict[str, Any] = copy.run(task_vars=variables)
        return result
