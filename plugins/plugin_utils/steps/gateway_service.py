# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the secrets of the gateway, and plan its service.

Writes the keys of ``gateway_model_keys`` and of the clusters in ``gateway_clusters`` to a file that only root can
read, with ``secret_environment``.
Writes the private key of ``gateway_tls_key`` next to the settings, if the plan has a certificate.
Neither the difference nor a result contains a key.
Returns the unit, the program and the settings, which a later task writes. A changed launch input changes the digest
in the unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import schema, service
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway, program
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``plan``: The result of ``gateway_plan``.
    """

    plan: Mapping[str, Any]


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the result of ``secret_environment`` and {unit, files, directories, written} of the service."""
    keys, planned = gateway.keys(step, variables), load.chosen(schema.Planned, given.plan, "plan")
    secrets = {variable: keys[cluster] for cluster, variable in planned.variables.items()}
    inputs = {"path": paths.GATEWAY_ENVIRONMENT, "variables": secrets}
    written = step.node("secret_environment", inputs, variables)
    if written.get("failed"):
        return written
    if planned.certificate:
        copied = _copy_key(step, gateway.tls(step, variables)["key"], variables)
        if copied.get("failed"):
            return {"failed": True, "msg": copied.get("msg", "")}
        written["changed"] = written["changed"] or copied["changed"]
    port, start_timeout = gateway.number(step, variables, "port"), gateway.number(step, variables, "start_timeout")
    # The unit has the version of the keys, so that it changes with them.
    found = service.service(planned, given.plan["environment"], port, start_timeout, written["version"])
    return {**written, **program.service(found)}


def _copy_key(step: Decision, key: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Write the private key of the certificate, which no difference shows."""
    task = step._task.copy()
    task.diff = False
    task.args = {
        "content": f"{key.strip()}\n",
        "dest": f"{paths.GATEWAY_FOLDER}/tls.key",
        "owner": "root",
        "group": "root",
        "mode": "0600",
    }
    copy = step._shared_loader_obj.action_loader.get(
        "ansible.builtin.copy",
        task=task,
        connection=step._connection,
        play_context=step._play_context,
        loader=step._loader,
        templar=step._templar,
        shared_loader_obj=step._shared_loader_obj,
    )
    result: dict[str, Any] = copy.run(task_vars=variables)
    return result
