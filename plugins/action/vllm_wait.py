# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of vllm_wait, which documents it."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.common.argument_spec import API
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES

_PAUSE_SECONDS = 2
#: Interval of progress lines in a long silent step, so that a quiet start does not look like a hang.
_SILENCE_SECONDS = 30


class ActionModule(ActionBase):
    """Polls the service from the controller, because a module cannot report before it ends."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the last answer of vllm_info, marked as failed after a failed start or the timeout."""
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(
            argument_spec={
                "name": {"type": "str", "default": "gb10-vllm.service"},
                "url": {"type": "str", "required": True},
                "timeout": {"type": "int", "required": True},
                "restarts": {"type": "int", "default": 0},
                **API,
            }
        )
        begin = shown_at = time.monotonic()
        shown = ""
        first: dict[str, Any] = {}
        previous: dict[str, Any] = {}
        while True:
            info = self._info(arguments, "", task_vars)
            if result := _settled(info, arguments["url"]):
                return result
            elapsed = time.monotonic() - begin
            service = info["service"]
            if not first or service["restarts"] < first["restarts"]:  # a manual start resets the count
                first = service
            if service["active"] in ("failed", "inactive") and not service["queued"]:
                return self._failure(arguments, info, service["invocation"], task_vars)
            if service["restarts"] - first["restarts"] > arguments["restarts"]:
                return self._failure(arguments, info, previous["invocation"], task_vars)
            previous = service
            if elapsed > arguments["timeout"]:
                late = f"not healthy after {elapsed:.0f} s; last step: {info['progress'] or 'none'}"
                return {"failed": True, "msg": f"{late}{STATES['start-timeout'].advice()}. {_hint(arguments)}"}
            step = info["progress"] or service["sub"]
            if step != shown or time.monotonic() - shown_at > _SILENCE_SECONDS:
                Display().display(f"  {(task_vars or {}).get('inventory_hostname')}: {elapsed:4.0f} s  {step}")
                shown, shown_at = step, time.monotonic()
            time.sleep(_PAUSE_SECONDS)

    def _info(self, arguments: dict[str, Any], invocation: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module_name="gb10.cluster.vllm_info",
            module_args={**{name: arguments[name] for name in ("name", "url", *API)}, "invocation": invocation},
            task_vars=task_vars,
        )
        return answer

    def _failure(
        self, arguments: dict[str, Any], info: dict[str, Any], invocation: str, task_vars: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Report the cause from the log of the failed start, because the current start has only begun."""
        failed = self._info(arguments, invocation, task_vars) if invocation != info["service"]["invocation"] else info
        cause = (
            failed.get("cause")
            or info["cause"]
            or f"its log has no error; it exited with status {info['service']['status']}"
        )
        return {
            "failed": True,
            "msg": f"{arguments['name']} failed to start: {cause}. {_hint(arguments)}",
            "cause": cause,
        }


def _settled(info: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the result if this answer of vllm_info is final, else {}."""
    if info.get("failed"):
        return info
    service = info["service"]
    # A server that is stopping or about to stop may still answer.
    if service["active"] != "active" or service["queued"]:
        return {}
    if info["healthy"]:
        return {**info, "changed": False}
    if info["untrusted"]:
        refused = f"{url} answers, but its TLS verification failed: {info['untrusted']}"
        return {"failed": True, "msg": f"{refused}{STATES['tls-untrusted'].advice()}"}
    return {}


def _hint(arguments: dict[str, Any]) -> str:
    return f"Full log: journalctl -u {arguments['name']}"
